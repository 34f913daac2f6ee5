"""Lists that come as streams (WatchList): what a server offers, refuses, breaks and does not know."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import anyio
import msgspec
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace

from failing_network import Answer, Following, Network, following, status
from opsdk.cache import Informers, ReflectorOptions
from opsdk.client import ApiClient, HttpRequest, HttpResponse
from opsdk.errors import ApiTimeoutError, ConfigurationError, ForbiddenError
from opsdk.manager import Manager, ManagerOptions
from opsdk.testing import ApiServer
from opsdk.types import Json

pytestmark = pytest.mark.anyio

STREAMED: Final = ReflectorOptions(stream_lists=True)


def asks_for_a_list(request: HttpRequest) -> bool:
    return dict(request.query).get("sendInitialEvents") == "true"


def streams(network: Network) -> int:
    """How many lists were asked for as streams: watches from no version."""
    return len([version for _, version in network.watches if not version])


def event(kind: str, name: str, version: int, **more: Json) -> bytes:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version), **more}
    return msgspec.json.encode({"type": kind, "object": {"metadata": metadata}}) + b"\n"


def bookmark(version: str, *, ends: bool) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if ends else {}
    metadata = {"resourceVersion": version, "annotations": annotations}
    return msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": metadata}}) + b"\n"


def ok(*lines: bytes) -> HttpResponse:
    return HttpResponse(status=200, headers={}, body=b"".join(lines))


def once(*answers: Answer) -> Callable[[HttpRequest], Answer | None]:
    """These answers, one after the other, to requests for streamed lists; all else passes."""
    left = list(answers)
    return lambda request: left.pop(0) if left and asks_for_a_list(request) else None


async def test_a_streamed_list_is_one_request_that_goes_on_as_the_watch() -> None:
    async with following("a", "b", options=STREAMED) as this:
        await this.synced()
        assert this.told() == ["found a", "found b"]
        await this.create("c")
        await this.delete("a")
        await anyio.sleep(1)
        assert this.told() == ["added c", "deleted a"]
        assert this.network.lists == []
        assert len(this.network.watches) == 1


async def test_a_streamed_list_of_nothing_is_complete_too() -> None:
    async with following(options=STREAMED) as this:
        await this.informer.wait_synced()
        await anyio.sleep(1)
        assert this.names() == []
        await this.create("a")
        await anyio.sleep(1)
        assert this.told() == ["added a"]


def is_synced(this: Following) -> bool:
    return this.informer.synced


def gone_once(this: Following) -> None:
    """The next watch that goes on from a version is told that it is too old."""
    answers: list[Answer] = [status(410, "Expired")]
    this.network.on_watch = lambda request: answers.pop() if answers and not asks_for_a_list(request) else None


@pytest.mark.parametrize("lines", [0, 1, 3])
async def test_w16_a_stream_that_breaks_before_the_bookmark_leaves_the_store_as_it_was_and_starts_over(
    lines: int,
) -> None:
    async with following("a", "b", "c", options=STREAMED) as this:
        await this.synced()
        this.told()
        gone_once(this)
        limits = [lines]
        served: list[list[str]] = []

        def limit(request: HttpRequest) -> int | None:
            if not asks_for_a_list(request):
                return None
            served.append(this.names())
            return limits.pop() if limits else None

        this.network.limit = limit
        this.network.cut()
        await anyio.sleep(0.1)
        await this.delete("b")
        await this.create("d")
        await anyio.sleep(60)
        before, after = served
        assert before == ["a", "b", "c"]
        assert set(after) >= {"a", "b", "c"}  # nothing was taken out for half a list
        assert this.names() == ["a", "c", "d"]
        assert sorted(this.told()) == ["added d", "deleted b"]
        assert this.network.lists == []


async def test_w16_a_first_stream_that_breaks_before_the_bookmark_has_not_synced() -> None:
    limits = [2]
    synced: list[bool] = []

    def prepare(this: Following) -> None:
        def limit(_: HttpRequest) -> int | None:
            synced.append(this.informer.synced)
            return limits.pop() if limits else None

        this.network.limit = limit

    async with following("a", "b", "c", options=STREAMED, prepare=prepare) as this:
        await this.synced()
        assert synced == [False, False]
        assert sorted(this.told()) == ["found a", "found b", "found c"]


async def test_w16_a_stream_that_breaks_after_the_bookmark_is_resumed_as_a_watch() -> None:
    def prepare(this: Following) -> None:
        this.network.limit = lambda request: 3 if asks_for_a_list(request) else None  # two objects and the bookmark

    async with following("a", "b", options=STREAMED, prepare=prepare) as this:
        await this.synced()
        this.told()
        await this.create("c")  # half of this line comes
        await this.delete("a")
        await anyio.sleep(30)
        assert sorted(this.told()) == ["added c", "deleted a"]
        assert streams(this.network) == 1
        assert len(this.network.watches) == 2
        assert this.network.lists == []


async def test_w16_a_silent_stream_is_given_up_before_the_bookmark_as_after_it() -> None:
    async with following("a", options=STREAMED) as this:
        this.network.frozen = True
        await anyio.sleep(91.5)
        assert isinstance(this.informer.last_error, ApiTimeoutError)
        assert this.informer.trouble.startswith("cannot list")
        assert not is_synced(this)
        this.network.frozen = False
        await anyio.sleep(95)
        assert is_synced(this)
        assert this.informer.last_error is None


async def test_what_happens_while_the_list_is_on_its_way_is_part_of_it() -> None:
    lines = (
        event("ADDED", "a", 11),
        event("ADDED", "b", 12),
        event("ADDED", "c", 13),
        event("DELETED", "b", 21),
        event("MODIFIED", "a", 22),
        event("DELETED", "never-seen", 23),
        bookmark("30", ends=True),
        event("ADDED", "d", 31),
    )

    def prepare(this: Following) -> None:
        this.network.on_watch = once(ok(*lines))

    async with following(options=STREAMED, prepare=prepare) as this:
        await this.informer.wait_synced()
        await anyio.sleep(0.1)
        assert this.names() == ["a", "c", "d"]
        assert this.told() == ["found a", "found b", "found c", "deleted b", "modified a", "added d"]
        await anyio.sleep(5)
        assert [version for _, version in this.network.watches][1] == "31"


@pytest.mark.parametrize("code", [400, 405, 406, 415, 422])
async def test_a_server_that_refuses_to_stream_is_asked_for_pages_at_once_and_not_again(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def prepare(this: Following) -> None:
        this.network.on_watch = lambda request: status(code, "Invalid") if asks_for_a_list(request) else None

    async with following("a", options=STREAMED, prepare=prepare) as this:
        await this.informer.wait_synced()
        assert this.network.lists == [this.network.watches[0][0]]  # at once
        assert this.informer.last_error is None
        gone_once(this)
        await anyio.sleep(1)
        this.network.cut()
        await this.create("b")
        await anyio.sleep(60)
        assert this.names() == ["a", "b"]
        assert (streams(this.network), len(this.network.lists)) == (1, 2)
        assert not [record for record in caplog.records if record.levelno > logging.INFO]  # quiet


async def test_a_server_that_refused_to_stream_is_asked_again_after_an_hour() -> None:
    def prepare(this: Following) -> None:
        this.network.on_watch = once(status(422, "Invalid"))

    async with following("a", options=STREAMED, prepare=prepare) as this:
        await this.synced()
        await anyio.sleep(3700)
        gone_once(this)
        this.network.cut()
        await anyio.sleep(60)
        assert (streams(this.network), len(this.network.lists)) == (2, 1)


@pytest.mark.parametrize(
    "answer",
    [
        # From "now", as of a watch without a version: objects, and a bookmark some time later.
        ok(event("ADDED", "a", 5), bookmark("40", ends=False)),
        ok(bookmark("40", ends=False)),
    ],
)
async def test_a_server_that_does_not_know_streamed_lists_is_asked_for_pages(answer: HttpResponse) -> None:
    def prepare(this: Following) -> None:
        this.network.on_watch = once(answer)

    async with following("a", "b", options=STREAMED, prepare=prepare) as this:
        await this.synced()
        assert this.names() == ["a", "b"]
        assert (streams(this.network), len(this.network.lists)) == (1, 1)


async def test_streams_that_always_end_too_early_give_way_to_pages() -> None:
    def prepare(this: Following) -> None:
        this.network.limit = lambda request: 1 if asks_for_a_list(request) else None

    async with following("a", "b", options=STREAMED, prepare=prepare) as this:
        await anyio.sleep(10)
        assert is_synced(this)
        assert this.names() == ["a", "b"]
        assert (streams(this.network), len(this.network.lists)) == (2, 1)


async def test_streams_that_end_empty_give_way_to_pages_with_backoff() -> None:
    def prepare(this: Following) -> None:
        this.network.on_watch = lambda request: ok() if asks_for_a_list(request) else None

    async with following("a", options=STREAMED, prepare=prepare) as this:
        await anyio.sleep(10)
        assert this.names() == ["a"]
        (first, _), (second, _) = this.network.watches[:2]
        assert second - first > 0.5
        assert (streams(this.network), len(this.network.lists)) == (2, 1)


async def test_lists_that_are_complete_but_whose_versions_are_gone_at_once_are_not_repeated_without_end() -> None:
    expired = msgspec.json.encode({"type": "ERROR", "object": msgspec.Raw(status(410, "Expired").body)})
    lines = (bookmark("30", ends=True), expired + b"\n")

    def prepare(this: Following) -> None:
        this.network.on_watch = lambda _: ok(*lines)

    async with following(options=STREAMED, prepare=prepare) as this:
        await anyio.sleep(120)
        assert is_synced(this)
        assert len(this.network.watches) <= 12


@pytest.mark.parametrize("refusal", [(403, "Forbidden"), (404, "NotFound")])
async def test_w11_a_kind_that_may_not_be_read_is_named_with_the_verb_and_streamed_when_it_may(
    refusal: tuple[int, str],
) -> None:
    def prepare(this: Following) -> None:
        this.network.on_watch = lambda _: status(*refusal)
        this.network.on_list = lambda _: status(*refusal, message="configmaps is forbidden: cannot list resource")

    async with following("a", options=STREAMED, prepare=prepare) as this:
        await anyio.sleep(10)
        assert this.informer.trouble.startswith("cannot list: ")
        assert not is_synced(this)
        if refusal[0] == 403:
            assert isinstance(this.informer.last_error, ForbiddenError)
        this.network.on_watch = this.network.on_list = lambda _: None
        lists = len(this.network.lists)
        await anyio.sleep(10)
        assert is_synced(this)
        assert this.informer.trouble == ""
        assert len(this.network.lists) == lists


async def test_where_lists_are_allowed_and_watches_are_not_the_verb_is_watch() -> None:
    def prepare(this: Following) -> None:
        this.network.on_watch = lambda _: status(403, "Forbidden")

    async with following("a", options=STREAMED, prepare=prepare) as this:
        await anyio.sleep(10)
        assert is_synced(this)
        assert this.informer.trouble.startswith("cannot watch: ")


async def test_w09_too_large_a_version_is_a_backoff_and_a_stream_without_one() -> None:
    def prepare(this: Following) -> None:
        this.network.on_watch = once(status(504, "Timeout", "Too large resource version"))

    async with following("a", options=STREAMED, prepare=prepare) as this:
        await this.synced()
        (first, _), (second, _) = this.network.watches
        assert second - first > 0.5
        assert streams(this.network) == 2


async def test_w10_an_object_that_cannot_be_read_does_not_stop_a_stream() -> None:
    broken = msgspec.json.encode({"type": "ADDED", "object": {"metadata": {"name": 1}}}) + b"\n"

    def prepare(this: Following) -> None:
        this.network.on_watch = once(ok(broken, event("ADDED", "a", 5), bookmark("9", ends=True)))

    async with following(options=STREAMED, prepare=prepare) as this:
        await this.informer.wait_synced()
        assert this.names() == ["a"]
        assert len(this.reports) == 1


async def test_what_one_informer_learned_of_a_server_the_others_of_the_kind_know() -> None:
    async with ApiServer() as server:
        await server.client().create(Namespace(metadata=ObjectMeta(name="other")))
        network = Network(server.transport())
        network.on_watch = lambda request: status(422, "Invalid") if asks_for_a_list(request) else None
        informers = Informers(ApiClient(network), options=STREAMED)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informers.run)
            first = informers.informer(ConfigMap, "default")
            await first.wait_synced()
            informers.informer(ConfigMap, "other")
            await informers.wait_synced()
            assert (streams(network), len(network.lists)) == (1, 2)
            tasks.cancel_scope.cancel()


async def test_a_stream_that_is_refused_for_a_while_is_tried_again_as_a_stream() -> None:
    def prepare(this: Following) -> None:
        this.network.on_watch = once(status(429, "TooManyRequests"), status(500, "InternalError"))

    async with following("a", options=STREAMED, prepare=prepare) as this:
        await anyio.sleep(20)
        assert is_synced(this)
        # Two in a row came to nothing, so this one list is in pages; the next is a stream again.
        assert len(this.network.lists) == 1
        gone_once(this)
        this.network.cut()
        await anyio.sleep(30)
        assert len(this.network.lists) == 1
        assert streams(this.network) == 3


async def test_freshness_counts_what_comes_through_a_stream() -> None:
    async with following("a", options=STREAMED) as this:
        await this.informer.wait_synced()
        assert this.informer.freshness <= timedelta(seconds=0.1)


def test_options_that_make_no_sense_are_refused_all_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"page_size is 0.*; inactivity is 0:00:00; it must be positive"):
        ReflectorOptions(page_size=0, inactivity=timedelta(0))


async def test_a_manager_lists_as_its_options_say() -> None:
    async with ApiServer() as server:
        network = Network(server.transport())
        options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False, reflector=STREAMED)
        manager = Manager(options, client=ApiClient(network))
        informer = manager.informers.informer(ConfigMap)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await informer.wait_synced()
            assert (streams(network), network.lists) == (1, [])
            manager.stop()
