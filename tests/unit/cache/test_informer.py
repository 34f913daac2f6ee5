"""Informers against the in-memory API server, with a network between them that can be made to fail."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import pairwise

import anyio
import msgspec
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Secret

from failing_network import Answer, Following, Network, following, status, text_of
from opsdk.cache import Change, Informer, Informers, ReflectorOptions, selector_of
from opsdk.client import ApiClient, HttpRequest, HttpResponse
from opsdk.errors import (
    ApiConnectionError,
    ApiTimeoutError,
    ForbiddenError,
    ManagerError,
    ObjectError,
    UnauthorizedError,
)
from opsdk.protocols import KubeObject
from opsdk.testing import ApiServer
from opsdk.types import Request

pytestmark = pytest.mark.anyio


def not_failing(informer: Informer[ConfigMap]) -> bool:
    return informer.last_error is None


async def test_what_is_there_and_what_happens_is_told_in_order() -> None:
    async with following("a", "b") as this:
        await this.synced()
        assert this.told() == ["found a", "found b"]
        created = await this.create("c")
        created.data = {"k": "v"}
        await this.client.replace(created)
        await this.delete("a")
        await anyio.sleep(1)
        assert this.told() == ["added c", "modified c", "deleted a"]
        assert this.names() == ["b", "c"]


async def test_a_handler_that_comes_late_is_told_of_what_is_there_and_one_that_left_of_nothing() -> None:
    async with following("a") as this:
        await this.synced()
        late: list[Change[ConfigMap]] = []
        handler = late.append
        this.informer.add_handler(handler)
        assert [text_of(change) for change in late] == ["found a"]
        this.informer.remove_handler(handler)
        this.informer.remove_handler(handler)
        await this.create("b")
        await anyio.sleep(1)
        assert len(late) == 1


async def test_a_handler_that_raises_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(change: Change[ConfigMap]) -> None:
        raise LookupError(text_of(change))

    async with following("a") as this:
        this.informer.add_handler(fail)
        await this.synced()
        await this.create("b")
        await anyio.sleep(1)
        assert this.names() == ["a", "b"]
    assert len([record for record in caplog.records if record.exc_info]) == 2


@pytest.mark.parametrize("form", ["status", "event"])
async def test_w01_an_object_deleted_while_the_watch_is_down_is_one_ordinary_delete(form: str) -> None:
    gone = status(410, "Expired", "too old resource version")
    if form == "event":
        event = msgspec.json.encode({"type": "ERROR", "object": msgspec.Raw(gone.body)}) + b"\n"
        gone = HttpResponse(status=200, headers={}, body=event)
    async with following("a", "b", "c") as this:
        await this.synced()
        this.told()
        answers: list[Answer] = [ApiConnectionError("down"), gone]
        this.network.on_watch = lambda _: answers.pop(0) if answers else None
        this.network.cut()
        await this.delete("b")
        await this.create("d")
        await anyio.sleep(60)
        assert sorted(this.told()) == ["added d", "deleted b"]
        assert len(this.network.lists) == 2
        await this.delete("a")
        await anyio.sleep(1)
        assert this.told() == ["deleted a"]


async def test_an_object_made_anew_while_the_watch_is_down_is_a_delete_and_an_add() -> None:
    async with following("a") as this:
        await this.synced()
        this.told()
        answers: list[Answer] = [status(410, "Gone")]
        this.network.on_watch = lambda _: answers.pop(0) if answers else None
        this.network.cut()
        await this.delete("a")
        await this.create("a")
        await anyio.sleep(60)
        assert this.told() == ["deleted a", "added a"]


async def test_w02_watches_that_close_empty_at_once_back_off_with_jitter() -> None:
    def close_at_once(this: Following) -> None:
        this.network.on_watch = lambda _: HttpResponse(status=200, headers={}, body=b"")

    async with following("a", prepare=close_at_once) as this:
        await this.synced()
        await anyio.sleep(600)
        times = [time for time, _ in this.network.watches]
        waits = [later - earlier for earlier, later in pairwise(times)]
        assert len([time for time in times if time <= 2]) <= 4
        assert 0.5 < waits[0] < 1.1
        assert all(20 < wait < 40 for wait in waits[6:])
        assert len(set(waits)) == len(waits)
        assert len(this.network.lists) == 1


async def test_w03_a_silent_peer_is_given_up_within_the_limit_and_the_watch_resumes() -> None:
    async with following("a") as this:
        await this.synced()
        await anyio.sleep(1)
        this.network.frozen = True
        await this.create("b")
        await anyio.sleep(87)
        for _ in range(60):
            if not_failing(this.informer):
                await anyio.sleep(0.1)
        assert timedelta(seconds=90) <= this.informer.freshness <= timedelta(seconds=92)
        assert isinstance(this.informer.last_error, ApiTimeoutError)
        this.network.frozen = False
        await anyio.sleep(140)
        assert this.names() == ["a", "b"]
        assert len(this.network.lists) == 1  # resumed, not listed again
        assert this.informer.freshness < timedelta(seconds=140)
        assert not_failing(this.informer)


async def test_w03_a_peer_that_speaks_now_and_then_is_not_given_up() -> None:
    async with following("a") as this:
        await this.synced()
        for number in range(40):  # 280 s: less than a watch lasts, and three times the limit
            await anyio.sleep(7)
            await this.create(f"b{number}")
        await anyio.sleep(1)
        assert len(this.network.watches) == 1
        assert len(this.names()) == 41
        assert not_failing(this.informer)


async def test_w03_where_watches_are_accepted_and_stay_silent_the_state_comes_from_lists() -> None:
    async with following("a") as this:
        await this.synced()
        this.network.frozen = True
        await this.create("b")
        await this.delete("a")
        await anyio.sleep(110)
        assert len(this.network.watches) == 2
        assert isinstance(this.informer.last_error, ApiTimeoutError)  # this one was accepted, and has said nothing
        await anyio.sleep(190)
        assert this.names() == ["b"]
        assert this.informer.freshness < timedelta(seconds=200)
        await anyio.sleep(1_000)
        assert 3 <= len(this.network.lists) <= 8


async def test_a_server_that_was_restored_from_a_backup_is_followed_from_there() -> None:
    async with ApiServer() as backup, following("a") as this:
        await backup.client().create(ConfigMap(metadata=ObjectMeta(name="old", namespace="default")))
        for number in range(20):
            await this.create(f"n{number}")
        await this.synced()
        written = await this.client.create(ConfigMap(metadata=ObjectMeta(name="lost", namespace="default")))
        this.network.inner = backup.transport()
        this.network.frozen = True  # a watch from a version of its future is accepted, and nothing ever comes
        this.network.cut()
        raw = this.client.document(written)
        assert raw is not None
        this.informer.wrote(raw)  # the restored server never had this one
        await anyio.sleep(200)
        assert [cached.header.name for cached in this.informer.select()] == ["old"]
        this.network.frozen = False
        await anyio.sleep(100)
        await backup.client().delete(ConfigMap, "old", namespace="default")
        await anyio.sleep(1)
        assert this.informer.select() == []


async def test_w06_bookmarks_move_the_resume_version_of_a_quiet_kind() -> None:
    async with following("a") as this:
        await this.synced()
        for number in range(20):
            await this.client.create(Secret(metadata=ObjectMeta(name=f"s{number}", namespace="default")))
        await anyio.sleep(3600)
        first, last = int(this.network.watches[0][1]), int(this.network.watches[-1][1])
        assert last >= first + 20
        assert len(this.network.lists) == 1


async def test_w07_a_list_whose_token_expires_between_pages_starts_over_and_nothing_is_served_half() -> None:
    expired: list[bool] = []

    def expire(request: HttpRequest) -> Answer | None:
        if dict(request.query).get("continue") and not expired:
            expired.append(True)
            return status(410, "Expired")
        return None

    def prepare(this: Following) -> None:
        this.network.on_list = expire

    async with following("a", "b", "c", "d", "e", options=ReflectorOptions(page_size=2), prepare=prepare) as this:
        await this.synced()
        assert this.names() == ["a", "b", "c", "d", "e"]
        assert sorted(this.told()) == [f"found {name}" for name in "abcde"]
        assert len(this.network.lists) == 5  # two, of which one failed, and three


async def test_w07_the_third_time_the_list_comes_in_one_piece() -> None:
    def prepare(this: Following) -> None:
        this.network.on_list = lambda request: status(410, "Expired") if dict(request.query).get("continue") else None

    async with following("a", "b", "c", options=ReflectorOptions(page_size=2), prepare=prepare) as this:
        await this.synced()
        assert this.names() == ["a", "b", "c"]


async def test_w08_the_watch_begins_at_the_lists_own_version() -> None:
    async with following("a", "b") as this:
        await this.synced()
        await this.client.create(Secret(metadata=ObjectMeta(name="s", namespace="default")))
        page = await this.client.raw.list_page(this.informer.resource)
        await anyio.sleep(1)
        assert int(this.network.watches[0][1]) < int(page.resource_version)
        versions = [cached.header.order for cached in this.informer.store.select()]
        assert int(this.network.watches[0][1]) >= max(versions)


async def test_w09_too_large_a_version_is_a_backoff_and_a_list_without_one() -> None:
    answers: list[Answer] = [
        status(504, "Timeout", "Too large resource version"),
        ApiConnectionError("down", sent=True),
    ]
    queries: list[dict[str, str]] = []

    def answer(request: HttpRequest) -> Answer | None:
        queries.append(dict(request.query))
        return answers.pop(0) if answers else None

    def prepare(this: Following) -> None:
        this.network.on_list = answer

    async with following("a", prepare=prepare) as this:
        await this.synced()
        assert this.network.lists[1] - this.network.lists[0] > 0.5
        assert all("resourceVersion" not in query for query in queries)


async def test_w11_a_refused_list_is_visible_at_once_and_recovers(caplog: pytest.LogCaptureFixture) -> None:
    def prepare(this: Following) -> None:
        this.network.on_list = lambda _: status(403, "Forbidden", "configmaps is forbidden: cannot list resource")

    async with following("a", prepare=prepare) as this:
        await anyio.sleep(10)
        error = this.informer.last_error
        assert isinstance(error, ForbiddenError)
        assert "list" in str(error)
        assert not this.informer.synced
        assert any("ConfigMap" in record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
        this.network.on_list = lambda _: None
        await anyio.sleep(40)
        assert not_failing(this.informer)
        assert this.informer.synced


@pytest.mark.parametrize("form", ["status", "event"])
async def test_w04_one_watch_that_is_unauthorized_resumes_and_no_other_notices(form: str) -> None:
    async with ApiServer() as server:
        network = Network(server.transport())
        informers = Informers(ApiClient(network))
        maps, secrets = informers.informer(ConfigMap), informers.informer(Secret)
        for kind in (ConfigMap, Secret):
            await server.client().create(kind(metadata=ObjectMeta(name="a", namespace="default")))
        refusal = status(401, "Unauthorized")
        if form == "event":
            event = msgspec.json.encode({"type": "ERROR", "object": msgspec.Raw(refusal.body)}) + b"\n"
            refusal = HttpResponse(status=200, headers={}, body=event)
        refused = [refusal, refusal]
        asked: list[str] = []

        def answer(request: HttpRequest) -> Answer | None:
            asked.append(request.path)
            return refused.pop() if request.path.endswith("/configmaps") and refused else None

        network.on_watch = answer
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informers.run)
            await informers.wait_synced()
            await anyio.sleep(0.1)
            assert isinstance(maps.last_error, UnauthorizedError)
            assert maps.trouble.startswith("cannot watch: ")
            assert secrets.last_error is None
            await server.client().delete(ConfigMap, "a", namespace="default")
            await server.client().delete(Secret, "a", namespace="default")
            await anyio.sleep(5)
            assert (len(maps.store), len(secrets.store)) == (0, 0)
            assert maps.trouble == ""
            assert sorted(asked) == ["/api/v1/configmaps"] * 3 + ["/api/v1/secrets"]
            assert len(network.lists) == 2
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("refusal", [(403, "Forbidden"), (404, "NotFound")])
async def test_w11_what_is_installed_or_allowed_after_a_long_time_is_noticed_within_10_s(
    refusal: tuple[int, str],
) -> None:
    def prepare(this: Following) -> None:
        this.network.on_list = lambda _: status(*refusal)

    async with following("a", prepare=prepare) as this:
        await anyio.sleep(600)
        assert not this.informer.synced
        this.network.on_list = lambda _: None
        await anyio.sleep(10)
        assert this.informer.synced


async def test_w13_a_relist_replaces_object_by_object() -> None:
    sizes: list[int] = []
    async with following(*(f"n{number}" for number in range(20)), options=ReflectorOptions(page_size=5)) as this:
        await this.synced()

        def measure(_: HttpRequest) -> Answer | None:
            sizes.append(len(this.informer.store))
            return None

        answers: list[Answer] = [status(410, "Gone")]
        this.network.on_watch = lambda _: answers.pop(0) if answers else None
        this.network.on_list = measure
        this.network.cut()
        for number in range(0, 20, 2):
            await this.delete(f"n{number}")
            await this.create(f"m{number}")
        await anyio.sleep(60)
        assert len(this.names()) == 20
        assert max(sizes) <= 20 + 10  # never more than the old ones and those that are new


async def test_w10_malformed_objects_are_reported_and_all_others_served() -> None:
    async with following("a") as this:
        await this.client.raw.request(
            "POST",
            "/api/v1/namespaces/default/secrets",
            body=msgspec.json.encode({"metadata": {"name": "odd"}, "data": {}, "type": "Opaque"}),
        )
        await this.synced()
        this.informer.wrote(
            msgspec.json.encode(
                {"metadata": {"name": "odd", "namespace": "default", "uid": "u", "resourceVersion": "999"}, "data": [1]}
            )
        )
        found = this.informer.store.decode_all(this.informer.select())
        assert [obj.metadata.name for obj in found if obj.metadata] == ["a"]
        (report,) = this.reports
        assert report.header is not None
        assert report.header.name == "odd"


async def test_informers_are_shared_by_class_namespace_and_selector() -> None:
    async with ApiServer() as server:
        informers = Informers(server.client())
        everywhere = informers.informer(ConfigMap)
        assert informers.informer(ConfigMap) is everywhere
        assert informers.informer(ConfigMap, labels={}) is everywhere
        one = informers.informer(ConfigMap, "default", "a=b")
        assert informers.informer(ConfigMap, "default", {"a": "b"}) is one
        assert one is not everywhere
        assert informers.all() == (everywhere, one)
        assert informers.covering(ConfigMap, "default") == (everywhere,)
        assert informers.covering(Secret, None) == []


async def test_an_informer_that_is_added_while_the_others_run_starts_at_once() -> None:
    async with ApiServer() as server:
        informers = Informers(server.client())
        informers.informer(ConfigMap)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informers.run)
            await informers.wait_synced()
            secrets = informers.informer(Secret)
            assert not informers.synced
            await informers.wait_synced()
            assert secrets.synced
            with pytest.raises(ManagerError, match="run already"):
                await informers.run()
            tasks.cancel_scope.cancel()


async def test_an_informer_runs_once_at_a_time() -> None:
    async with ApiServer() as server:
        client = server.client()
        informer = Informer(client, ConfigMap, namespace="default")
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(informer.run)
                await anyio.sleep(1)
                assert informer.synced
                with pytest.raises(ManagerError, match=r"informer of ConfigMap.* runs already"):
                    await informer.run()
                tasks.cancel_scope.cancel()
        await client.create(ConfigMap(metadata=ObjectMeta(name="later", namespace="default")))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            await anyio.sleep(1)
            assert [cached.header.name for cached in informer.select()] == ["later"]
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("written", [False, True])
async def test_labels_are_selected_by_a_text_a_mapping_or_a_selector(*, written: bool) -> None:
    async with ApiServer() as server:
        client = server.client()
        informers = Informers(client, namespaces=["default"])
        (informer,) = informers.everywhere(ConfigMap, "app=web")
        for name, where in (("a", "front"), ("b", "back")):
            labels = {"app": "web", "tier": where}
            await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default", labels=labels)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informers.run)
            await informers.wait_synced()
            if written:
                metadata = {"name": "w", "namespace": "default", "uid": "u", "resourceVersion": "999999"}
                web = {"app": "web", "tier": "front"}
                informer.wrote(msgspec.json.encode({"metadata": {**metadata, "labels": web}}))
            for tier in ("tier=front", {"tier": "front"}, selector_of("tier=front")):
                found = sorted(cached.header.name for cached in informer.select(labels=tier))
                assert found == (["a", "w"] if written else ["a"])
            for app in ("app=web", {"app": "web"}, selector_of("app=web")):
                assert informers.selecting(ConfigMap, "default", app) == (informer,)
            with pytest.raises(ObjectError, match="selector"):
                informer.select(labels="tier in")
            tasks.cancel_scope.cancel()


async def test_a_namespaced_informer_with_a_selector_sees_what_matches_and_what_stops_to_match() -> None:
    async with ApiServer() as server:
        client = server.client()
        informer = Informer(client, ConfigMap, namespace="default", labels="tier=web")
        for name, tier, namespace in (("a", "web", "default"), ("b", "db", "default"), ("c", "web", "kube-system")):
            metadata = ObjectMeta(name=name, namespace=namespace, labels={"tier": tier})
            await client.create(ConfigMap(metadata=metadata))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            await informer.wait_synced()
            assert [cached.header.request for cached in informer.store.select()] == [Request("a", "default")]
            found = await client.get(ConfigMap, "a", namespace="default")
            assert found.metadata is not None
            found.metadata.labels = {"tier": "db"}
            await client.replace(found)
            await anyio.sleep(1)
            assert len(informer.store) == 0
            tasks.cancel_scope.cancel()


async def test_the_hook_for_malformed_objects_may_be_set_later() -> None:
    async with ApiServer() as server:
        informers = Informers(server.client())
        informer: Informer[ConfigMap] = informers.informer(ConfigMap)
        kinds: list[type[KubeObject]] = []
        informer.store.read(b"{}")
        informers.malformed = lambda malformed: kinds.append(malformed.kind)
        informer.store.read(b'{"metadata":{}}')
        assert kinds == [ConfigMap]
