"""Which keys come from children, from other kinds and from streams."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap, Namespace, Secret

from opsdk import errors
from opsdk.cache import Change, Informers
from opsdk.client import ApiClient
from opsdk.controller import (
    ControllerBuilder,
    Predicate,
    ReconcileOutcome,
    WorkInProgress,
    labels_changed,
)
from opsdk.controller._sources import MappedSource
from opsdk.models import metadata_of, view_of
from opsdk.ownership import OWNER_UID_LABEL
from opsdk.protocols import KeySink, KubeObject, Runnable
from opsdk.testing import ApiServer
from opsdk.testing.virtual_time import virtual_asyncio_options
from opsdk.types import MergePatch, Request, Result
from opsdk.workqueue import WorkQueue

pytestmark = pytest.mark.anyio


class NoMetrics:
    def reconcile(self, controller: str, /) -> NoMetrics:
        return self

    def workqueue(self, name: str, /) -> NoMetrics:
        return self

    def watch_workqueue(self, queue: WorkInProgress, /) -> None: ...
    def workers(self, count: int, /) -> None: ...
    def started(self) -> None: ...
    def finished(self, outcome: ReconcileOutcome, seconds: float, /) -> None: ...
    def self_triggered(self) -> None: ...
    def depth(self, ready: int, /) -> None: ...
    def added(self) -> None: ...
    def leased(self, waited_seconds: float, /) -> None: ...
    def released(self, worked_seconds: float, /) -> None: ...
    def retried(self) -> None: ...


class Host:
    """What a manager is to controllers, and no more; its controllers write down what they are asked to reconcile."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.informers = Informers(client)
        self.metrics = NoMetrics()
        self.namespaces: Sequence[str] = ()
        self.seen: list[str] = []
        self._added: list[Runnable] = []

    def add(self, runnable: Runnable, /) -> None:
        self._added.append(runnable)

    def configs(self) -> ControllerBuilder[ConfigMap]:
        return ControllerBuilder(self, ConfigMap)

    async def reconcile(self, request: Request, /) -> Result:
        self.seen.append(str(request))
        return Result()

    async def settled(self) -> list[str]:
        """What was reconciled since the last call."""
        await anyio.sleep(1)
        seen, self.seen = self.seen, []
        return sorted(seen)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.informers.run)
            for runnable in self._added:
                tasks.start_soon(runnable.run)
            await self.settled()
            yield
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def hosting() -> AsyncGenerator[Host]:
    async with ApiServer() as server:
        yield Host(server.client())


def config(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"))


def child(name: str, owner: ConfigMap | None = None, *, uid: str = "", controller: bool = True) -> Secret:
    metadata = ObjectMeta(name=name, namespace="default")
    if owner is not None:
        of = metadata_of(owner)
        assert of.name is not None
        assert of.uid is not None
        metadata.ownerReferences = [
            OwnerReference(apiVersion="v1", kind="ConfigMap", name=of.name, uid=of.uid, controller=controller)
        ]
    if uid:
        metadata.labels = {OWNER_UID_LABEL: uid}
    return Secret(metadata=metadata)


async def test_the_owner_of_a_child_is_reconciled_when_it_comes_changes_and_goes() -> None:
    async with hosting() as host:
        host.configs().owns(Secret).complete(host)
        owner = await host.client.create(config("a"))
        async with host.running():
            created = await host.client.create(child("s", owner))
            assert await host.settled() == ["default/a"]
            created.stringData = {"k": "v"}
            await host.client.replace(created)
            assert await host.settled() == ["default/a"]
            await host.client.delete(Secret, "s", namespace="default")
            assert await host.settled() == ["default/a"]


async def test_children_of_others_and_of_nobody_concern_nobody() -> None:
    async with hosting() as host:
        host.configs().owns(Secret).complete(host)
        owner = await host.client.create(config("a"))
        async with host.running():
            await host.client.create(child("orphan"))
            await host.client.create(child("no-controller", owner, controller=False))
            other = child("other", owner)
            assert metadata_of(other).ownerReferences is not None
            metadata_of(other).ownerReferences = [
                OwnerReference(apiVersion="example.com/v1", kind="ConfigMap", name="a", uid="u", controller=True)
            ]
            await host.client.create(other)
            assert await host.settled() == []


async def test_a_child_in_another_namespace_is_known_by_the_label_with_its_owners_uid() -> None:
    async with hosting() as host:
        host.configs().owns(Secret).complete(host)
        owner = await host.client.create(config("a"))
        uid = metadata_of(owner).uid
        assert uid is not None
        async with host.running():
            far = child("s", uid=uid)
            metadata_of(far).namespace = "kube-system"
            await host.client.create(far)
            assert await host.settled() == ["default/a"]
            unknown = child("t", uid="nobody")
            await host.client.create(unknown)
            assert await host.settled() == []


async def test_a_child_that_moves_to_another_owner_concerns_both() -> None:
    async with hosting() as host:
        host.configs().owns(Secret).complete(host)
        first, second = await host.client.create(config("a")), await host.client.create(config("b"))
        async with host.running():
            created = await host.client.create(child("s", first))
            await host.settled()
            metadata_of(created).ownerReferences = metadata_of(child("s", second)).ownerReferences
            await host.client.replace(created)
            assert await host.settled() == ["default/a", "default/b"]


async def test_predicates_choose_among_the_changes_of_children() -> None:
    async with hosting() as host:
        host.configs().owns(Secret, predicates=[labels_changed()]).complete(host)
        owner = await host.client.create(config("a"))
        async with host.running():
            created = await host.client.create(child("s", owner))
            await host.settled()
            created.stringData = {"k": "v"}
            created = await host.client.replace(created)
            assert await host.settled() == []
            metadata_of(created).labels = {"x": "y"}
            await host.client.replace(created)
            assert await host.settled() == ["default/a"]


async def test_a_predicate_that_raises_is_logged_and_loses_no_change(caplog: pytest.LogCaptureFixture) -> None:
    def careless(change: Change[KubeObject]) -> bool:
        raise AttributeError("NoneType has no attribute 'name'")

    async with hosting() as host:
        bad = Predicate[KubeObject](careless, "careless")
        host.configs().predicates(bad).owns(Secret, predicates=[bad]).complete(host)
        async with host.running():
            owner = await host.client.create(config("a"))
            assert await host.settled() == ["default/a"]
            await host.client.create(child("s", owner))
            assert await host.settled() == ["default/a"]
    assert [record.getMessage().count("careless") for record in caplog.records if record.exc_info] == [1, 1]


async def test_a_stream_that_does_not_close_does_not_hold_up_the_end() -> None:
    class Stubborn:
        def __aiter__(self) -> Stubborn:
            return self

        async def __anext__(self) -> Request:
            await anyio.sleep_forever()
            raise AssertionError

        async def aclose(self) -> None:
            await anyio.sleep_forever()

    async with hosting() as host:
        host.configs().source(Stubborn()).complete(host)
        with anyio.fail_after(60):
            async with host.running():
                pass


async def test_other_kinds_are_mapped_by_sync_and_async_functions() -> None:
    def by_name(secret: Secret) -> Iterable[Request]:
        yield Request(f"of-{metadata_of(secret).name}", "default")

    async with hosting() as host:

        async def everything(namespace: Namespace) -> list[Request]:
            configs = await host.client.list(ConfigMap, namespace=metadata_of(namespace).name)
            return [Request(metadata_of(found).name or "", "staging") for found in configs]

        host.configs().watches(Secret, map=by_name).watches(Namespace, map=everything).complete(host)
        namespace = await host.client.create(Namespace(metadata=ObjectMeta(name="staging")))
        await host.client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="staging")))
        async with host.running():
            await host.client.create(child("s"))
            assert await host.settled() == ["default/of-s"]
            metadata_of(namespace).labels = {"x": "y"}
            await host.client.replace(namespace)
            assert await host.settled() == ["staging/c"]


async def test_a_map_sees_the_object_before_and_after_a_modification() -> None:
    def by_label(secret: Secret) -> list[Request]:
        labels = view_of(secret).labels or {}
        return [Request(labels["for"], "default")] if "for" in labels else []

    async with hosting() as host:
        host.configs().watches(Secret, map=by_label).complete(host)
        secret = child("s")
        metadata_of(secret).labels = {"for": "a"}
        secret = await host.client.create(secret)
        async with host.running():
            metadata_of(secret).labels = {"for": "b"}
            await host.client.replace(secret)
            assert await host.settled() == ["default/a", "default/b"]


def by_label_for(secret: Secret) -> list[Request]:
    labels = view_of(secret).labels or {}
    return [Request(labels["for"], "default")] if "for" in labels else []


async def test_q11_of_changes_that_a_slow_map_has_not_seen_the_first_and_the_last_wait_for_each_object() -> None:
    """However many there are, so that what waits is bounded by the number of objects."""
    mapped: list[str] = []

    async def slowly(secret: Secret) -> list[Request]:
        await anyio.sleep(60)
        mapped.append((view_of(secret).labels or {})["for"])
        return by_label_for(secret)

    async with ApiServer() as server:
        client = server.client()
        informer = Informers(client).informer(Secret)
        source = MappedSource([informer], (), slowly, "test")
        queue = WorkQueue[Request]("test")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            tasks.start_soon(source.run, queue)
            await anyio.sleep(1)
            secrets = [await client.create(labelled(f"s{number}", "0")) for number in range(3)]
            for version in range(1, 100):
                for number, secret in enumerate(secrets):
                    metadata_of(secret).labels = {"for": str(version)}
                    secrets[number] = await client.replace(secret)
            await anyio.sleep(30)
            assert len(source) <= 3
            await anyio.sleep(3600)
            tasks.cancel_scope.cancel()
        assert len(source) == 0
    assert mapped.count("99") == 3, "the newest of each"
    assert len(mapped) <= 1 + 3 * 16


async def test_what_an_object_pointed_to_for_a_moment_while_the_map_was_busy_is_named_too() -> None:
    """A reconcile of that one, for another reason, may have seen it, and nothing else would tell it that it is over."""

    async def slowly(secret: Secret) -> list[Request]:
        await anyio.sleep(60)
        return by_label_for(secret)

    async with ApiServer() as server:
        client = server.client()
        informer = Informers(client).informer(Secret)
        queue = WorkQueue[Request]("test")
        named: set[str] = set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            tasks.start_soon(MappedSource([informer], (), slowly, "test").run, queue)
            await anyio.sleep(1)
            await client.create(labelled("other", "w"))
            await anyio.sleep(1)
            await client.create(labelled("s", "x"))
            for target in "yz":
                await anyio.sleep(1)
                patch = MergePatch({"metadata": {"labels": {"for": target}}})
                await client.patch(Secret, "s", patch, namespace="default")
            with anyio.move_on_after(1000):
                while True:
                    async with queue.lease() as request:
                        named.add(request.name)
            tasks.cancel_scope.cancel()
        assert named == {"w", "x", "y", "z"}


def labelled(name: str, target: str) -> Secret:
    secret = child(name)
    metadata_of(secret).labels = {"for": target}
    return secret


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "wait"]), st.sampled_from("ab"), st.sampled_from("xyz")), max_size=25
)


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_a_map_that_is_slow_names_at_least_what_each_object_pointed_to_at_rest(
    steps: list[tuple[str, str, str]],
) -> None:
    """Invariant: a target that an object points to at the end, or pointed to when the map had seen everything, is
    enqueued after the last change that made it so or no longer so.
    """

    async def play() -> None:
        handed: list[set[str]] = [set()]
        owed: set[str] = set()
        now: dict[str, str] = {}
        at_rest: dict[str, str] = {}

        async def slowly(secret: Secret) -> list[Request]:
            await anyio.sleep(7)
            return by_label_for(secret)

        async with ApiServer() as server:
            client = server.client()
            informer = Informers(client).informer(Secret)
            queue = WorkQueue[Request]("test")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(informer.run)
                tasks.start_soon(MappedSource([informer], (), slowly, "test").run, queue)

                async def note() -> None:
                    while True:
                        async with queue.lease() as request:
                            handed[0].add(request.name)

                tasks.start_soon(note)
                await anyio.sleep(1)
                for step, name, target in [*steps, ("wait", "", "")]:
                    if step == "put" and now.get(name) != target:
                        if name in now:
                            await client.patch(
                                Secret, name, MergePatch({"metadata": {"labels": {"for": target}}}), namespace="default"
                            )
                        else:
                            await client.create(labelled(name, target))
                        now[name] = target
                    elif step == "delete" and name in now:
                        await client.delete(Secret, name, namespace="default")
                        del now[name]
                    elif step == "wait":
                        await anyio.sleep(1000)
                        for each in {*now, *at_rest}:
                            if now.get(each) != at_rest.get(each):
                                owed |= {where[each] for where in (now, at_rest) if each in where}
                        assert owed <= handed[0]
                        owed.clear()
                        handed[0] = set()
                        at_rest = dict(now)
                    await anyio.sleep(1)
                tasks.cancel_scope.cancel()

    name, options = virtual_asyncio_options()
    anyio.run(play, backend=name, backend_options=options)


async def test_only_what_the_labels_select_is_watched() -> None:
    async with hosting() as host:
        host.configs().watches(
            Secret, map=lambda secret: [Request(metadata_of(secret).name or "")], labels="tier in (web, api)"
        ).complete(host)
        async with host.running():
            for name in ("web", "db"):
                secret = child(name)
                metadata_of(secret).labels = {"tier": name}
                await host.client.create(secret)
            assert await host.settled() == ["web"]


async def test_a_map_that_raises_is_logged_and_does_not_hold_up_what_comes_after(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def choosy(secret: Secret) -> list[Request]:
        if metadata_of(secret).name == "bad":
            raise LookupError
        return [Request("good")]

    async with hosting() as host:
        host.configs().watches(Secret, map=choosy).complete(host)
        async with host.running():
            await host.client.create(child("bad"))
            await host.client.create(child("fine"))
            assert await host.settled() == ["good"]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "default/bad" in record.getMessage()


async def test_streams_of_keys_are_reconciled_until_they_end() -> None:
    closed: list[bool] = []

    async def stream() -> AsyncGenerator[Request]:
        try:
            yield Request("from-an-iterable")
            await anyio.sleep(3600)
        finally:
            closed.append(True)

    async def feed(sink: KeySink[Request]) -> None:
        sink.add(Request("from-a-function"))

    async with hosting() as host:
        host.configs().source(stream()).source(feed).complete(host)
        async with host.running():
            pass
        assert closed == [True]


async def test_streams_feed_the_queue() -> None:
    async def stream() -> AsyncIterator[Request]:
        for number in range(3):
            await anyio.sleep(10)
            yield Request(f"n{number}")

    async def feed(sink: KeySink[Request]) -> None:
        await anyio.sleep(5)
        sink.add(Request("fed"))

    async with hosting() as host:
        host.configs().source(stream()).source(feed).complete(host)
        async with host.running():
            await anyio.sleep(60)
            assert await host.settled() == ["fed", "n0", "n1", "n2"]


async def test_a_stream_that_raises_fails_the_controller_with_that_bare_error() -> None:
    async def stream() -> AsyncIterator[Request]:
        yield Request("a")
        raise ConnectionResetError("the bus is gone")

    async with hosting() as host:
        controller = host.configs().source(stream()).complete(host)
        with pytest.raises(ConnectionResetError, match="the bus is gone"):
            await controller.run()


async def test_a_class_without_a_kind_is_refused_when_it_is_declared() -> None:
    class Nothing:
        metadata = ObjectMeta()

    async with hosting() as host:
        with pytest.raises(errors.ResourceDefinitionError, match="Nothing"):
            host.configs().owns(Nothing)
        with pytest.raises(errors.ResourceDefinitionError, match="Nothing"):
            host.configs().watches(Nothing, map=lambda _: [])
