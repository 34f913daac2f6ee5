"""The client that reads from caches, against the in-memory API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import msgspec
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Secret, ServiceAccount

from opsdk.cache import CachedClient, Informers
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.errors import AlreadyExistsError, CacheNotSyncedError, ConflictError, NotFoundError, ObjectError
from opsdk.models import codec_of, metadata_of
from opsdk.protocols import Undecodable
from opsdk.testing import ApiServer
from opsdk.types import MergePatch, Preconditions

pytestmark = pytest.mark.anyio


class Counting:
    """Counts requests, and holds back what watches deliver when told to."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.requests: list[str] = []
        self.lag = timedelta(0)

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        self.requests.append(request.method)
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self.inner.stream(request) as stream:
            chunks = _Late(self, stream.chunks)
            yield HttpStream(status=stream.status, headers=stream.headers, chunks=chunks)

    async def aclose(self) -> None:
        await self.inner.aclose()


class _Late(AsyncIterator[bytes]):
    def __init__(self, counting: Counting, chunks: AsyncIterator[bytes]) -> None:
        self._counting = counting
        self._chunks = chunks

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        await anyio.sleep(self._counting.lag.total_seconds())
        return chunk


class World:
    def __init__(self, server: ApiServer, namespaces: Sequence[str] = ()) -> None:
        self.transport = Counting(server.transport())
        self.other = server.client(field_manager="someone-else")
        self.informers = Informers(ApiClient(self.transport), namespaces=namespaces)
        self.client = CachedClient(ApiClient(self.transport), self.informers)


@asynccontextmanager
async def world(*kinds: type[ConfigMap | Secret | ServiceAccount], lag: float = 0.0) -> AsyncGenerator[World]:
    """A cached client that has synced, whose watches are so many seconds behind."""
    async with ApiServer() as server:
        this = World(server)
        for kind in kinds:
            this.informers.informer(kind)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            await this.informers.wait_synced()
            await anyio.sleep(1)
            this.transport.lag = timedelta(seconds=lag)
            this.transport.requests.clear()
            yield this
            tasks.cancel_scope.cancel()


class _Document(msgspec.Struct):
    data: dict[str, str] = {}


def data_of(found: ConfigMap) -> dict[str, str]:
    return msgspec.json.decode(codec_of(ConfigMap).encode(found), type=_Document).data


def config(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


async def test_watched_kinds_are_read_without_a_request_and_others_with_one() -> None:
    async with world(ConfigMap) as this:
        await this.other.create(config("a", k="v"))
        await this.other.create(Secret(metadata=ObjectMeta(name="s", namespace="default")))
        await anyio.sleep(1)
        assert data_of(await this.client.get(ConfigMap, "a", namespace="default")) == {"k": "v"}
        assert await this.client.find(ConfigMap, "b", namespace="default") is None
        assert len(await this.client.list(ConfigMap)) == 1
        assert this.transport.requests == []
        await this.client.get(Secret, "s", namespace="default")
        await this.client.uncached.get(ConfigMap, "a", namespace="default")
        assert this.transport.requests == ["GET", "GET"]


async def test_a_watched_object_that_is_not_there_is_not_found_as_from_the_server() -> None:
    async with world(ConfigMap) as this:
        with pytest.raises(NotFoundError, match=r'configmaps "b" not found') as cached:
            await this.client.get(ConfigMap, "b", namespace="default")
        with pytest.raises(NotFoundError) as uncached:
            await this.client.uncached.get(ConfigMap, "b", namespace="default")
        for name in ("code", "reason", "server_message", "kind", "name"):
            assert getattr(cached.value, name) == getattr(uncached.value, name)


async def test_reads_before_the_cache_has_synced_are_refused() -> None:
    async with ApiServer() as server:
        this = World(server)
        this.informers.informer(ConfigMap)
        for read in (
            this.client.get(ConfigMap, "a", namespace="default"),
            this.client.find(ConfigMap, "a", namespace="default"),
            this.client.list(ConfigMap),
        ):
            with pytest.raises(CacheNotSyncedError, match=r"ConfigMap.*informers.wait_synced.*`uncached`"):
                await read
        with pytest.raises(CacheNotSyncedError, match="ConfigMap"):
            this.client.stream(ConfigMap)
        assert await this.client.list(Secret) == []


async def test_a_namespace_is_asked_for_where_the_server_would() -> None:
    async with world(ConfigMap) as this:
        with pytest.raises(ObjectError, match="which namespace"):
            await this.client.get(ConfigMap, "a")
        this.informers.informer(Namespace)
        await this.informers.wait_synced()
        with pytest.raises(ObjectError, match="cluster-scoped"):
            await this.client.get(Namespace, "default", namespace="default")
        assert metadata_of(await this.client.get(Namespace, "default")).name == "default"


async def test_lists_are_selected_by_namespace_labels_and_names_and_sorted() -> None:
    async with world(ConfigMap) as this:
        for name, namespace, tier in (("b", "default", "web"), ("a", "default", "db"), ("c", "kube-system", "web")):
            metadata = ObjectMeta(name=name, namespace=namespace, labels={"tier": tier})
            await this.other.create(ConfigMap(metadata=metadata))
        await anyio.sleep(1)

        async def names(**selection: str) -> list[str | None]:
            found = await this.client.list(
                ConfigMap,
                namespace=selection.get("namespace"),
                labels=selection.get("labels"),
                fields={"metadata.name": selection["name"]} if "name" in selection else None,
            )
            return [metadata_of(obj).name for obj in found]

        assert await names() == ["a", "b", "c"]
        assert await names(namespace="default") == ["a", "b"]
        assert await names(labels="tier in (web)") == ["b", "c"]
        assert await names(labels="!tier") == []
        assert await names(name="b", namespace="default") == ["b"]
        assert await names(name="b", namespace="kube-system") == []
        assert this.transport.requests == []
        found = [obj async for obj in this.client.stream(ConfigMap, labels={"tier": "db"})]
        assert [metadata_of(obj).name for obj in found if not isinstance(obj, Undecodable)] == ["a"]
        with pytest.raises(ObjectError, match="label selector"):
            await this.client.list(ConfigMap, labels="a in")


async def test_an_informer_with_a_selector_answers_that_selection_only() -> None:
    async with ApiServer() as server:
        this = World(server)
        this.informers.informer(ConfigMap, "default", "tier=web")
        for name in ("web", "db"):
            await this.other.create(
                ConfigMap(metadata=ObjectMeta(name=name, namespace="default", labels={"tier": name}))
            )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            await this.informers.wait_synced()
            this.transport.requests.clear()
            assert len(await this.client.list(ConfigMap, namespace="default", labels={"tier": "web"})) == 1
            assert this.transport.requests == []
            assert len(await this.client.list(ConfigMap, namespace="default")) == 2
            await this.client.get(ConfigMap, "db", namespace="default")
            assert this.transport.requests == ["GET", "GET"]
            tasks.cancel_scope.cancel()


async def test_q13_what_was_written_is_read_however_far_behind_the_watch_is() -> None:
    async with world(ConfigMap, lag=5) as this:
        created = await this.client.create(config("a", k="1"))
        with pytest.raises(AlreadyExistsError):
            await this.client.create(config("a"))
        found = await this.client.find(ConfigMap, "a", namespace="default")
        assert found is not None
        assert metadata_of(found).uid == metadata_of(created).uid
        for number in range(2, 5):
            base = this.client.snapshot(found)
            found.data = {"k": str(number)}
            assert await this.client.patch_from(base, found) is not None
            found = await this.client.get(ConfigMap, "a", namespace="default")
            assert data_of(found) == {"k": str(number)}
            assert [data_of(obj) for obj in await this.client.list(ConfigMap)] == [{"k": str(number)}]
        await this.client.patch(ConfigMap, "a", MergePatch({"data": {"p": "q"}}), namespace="default")
        assert data_of(await this.client.get(ConfigMap, "a", namespace="default")) == {"k": "4", "p": "q"}
        await this.client.delete(ConfigMap, "a", namespace="default")
        assert await this.client.find(ConfigMap, "a", namespace="default") is None
        assert await this.client.list(ConfigMap) == []
        again = await this.client.create(config("a", k="again"))
        found = await this.client.get(ConfigMap, "a", namespace="default")
        assert metadata_of(found).uid == metadata_of(again).uid
        await anyio.sleep(100)
        assert data_of(await this.client.get(ConfigMap, "a", namespace="default")) == {"k": "again"}
        assert set(this.transport.requests) == {"POST", "PATCH", "DELETE"}  # no read went to the server


async def test_q14_an_edit_between_our_write_and_its_echo_is_read_when_it_comes() -> None:
    async with world(ConfigMap, lag=5) as this:
        created = await this.client.create(config("a", k="ours"))
        created.data = {"k": "theirs"}
        await this.other.replace(created)
        assert data_of(await this.client.get(ConfigMap, "a", namespace="default")) == {"k": "ours"}
        await anyio.sleep(20)
        assert data_of(await this.client.get(ConfigMap, "a", namespace="default")) == {"k": "theirs"}


async def test_an_object_with_a_finalizer_is_read_as_on_its_way_out() -> None:
    async with world(ConfigMap, lag=5) as this:
        held = config("a")
        metadata_of(held).finalizers = ["example.com/hold"]
        await this.client.create(held)
        await this.client.delete(ConfigMap, "a", namespace="default")
        found = await this.client.get(ConfigMap, "a", namespace="default")
        assert metadata_of(found).deletionTimestamp is not None
        base = this.client.snapshot(found)
        metadata_of(found).finalizers = []
        await this.client.patch_from(base, found)
        await anyio.sleep(60)
        assert await this.client.find(ConfigMap, "a", namespace="default") is None


async def test_dry_runs_are_not_read_back() -> None:
    async with world(ConfigMap, lag=5) as this:
        await this.client.create(config("ghost"), dry_run=True)
        assert await this.client.find(ConfigMap, "ghost", namespace="default") is None
        await this.client.create(config("a", k="v"))
        await this.client.patch(ConfigMap, "a", MergePatch({"data": {"k": "w"}}), namespace="default", dry_run=True)
        assert data_of(await this.client.get(ConfigMap, "a", namespace="default")) == {"k": "v"}
        await this.client.delete(ConfigMap, "a", namespace="default", dry_run=True)
        assert await this.client.find(ConfigMap, "a", namespace="default") is not None


async def test_a_failed_write_changes_no_read() -> None:
    async with world(ConfigMap) as this:
        created = await this.client.create(config("a", k="v"))
        with pytest.raises(ConflictError):
            await this.client.delete(ConfigMap, "a", namespace="default", preconditions=Preconditions(uid="another"))
        assert await this.client.find(ConfigMap, "a", namespace="default") is not None
        metadata_of(created).resourceVersion = "1"
        created.data = {"k": "w"}
        with pytest.raises(ConflictError):
            await this.client.replace(created)
        assert data_of(await this.client.get(ConfigMap, "a", namespace="default")) == {"k": "v"}


async def test_o03_what_the_model_does_not_know_survives_a_write_of_what_was_read_from_the_cache() -> None:
    async with world(ConfigMap) as this:
        await this.other.raw.request(
            "POST",
            "/api/v1/namespaces/default/configmaps",
            query=[("fieldManager", "someone-else")],
            body=msgspec.json.encode({"metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"b": "AA=="}}),
        )
        await anyio.sleep(1)
        found = await this.client.get(ConfigMap, "a", namespace="default")
        base = this.client.snapshot(found)
        assert base.document is not None
        assert b"managedFields" not in base.document
        found.data = {"k": "w"}
        await this.client.replace(found)
        assert this.transport.requests == ["PUT"]  # the document came from the cache
        stored = await this.other.get(ConfigMap, "a", namespace="default")
        assert b'"binaryData":{"b":"AA=="}' in codec_of(ConfigMap).encode(stored)
        managers = {entry.manager for entry in metadata_of(stored).managedFields or ()}
        assert managers == {"opsdk", "someone-else"}


async def test_a_collection_that_is_deleted_is_gone_from_the_next_read() -> None:
    async with world(ConfigMap, lag=5) as this:

        def labelled(name: str, tier: str) -> ConfigMap:
            return ConfigMap(metadata=ObjectMeta(name=name, namespace="default", labels={"tier": tier}))

        held = labelled("held", "web")
        metadata_of(held).finalizers = ["example.com/hold"]
        for each in (labelled("a", "web"), held, labelled("moved", "web"), labelled("other", "db")):
            await this.client.create(each)
        # Somebody else takes one out of the selection, and the watch has not shown it yet: it is not deleted.
        await this.other.patch(
            ConfigMap, "moved", MergePatch({"metadata": {"labels": {"tier": "db"}}}), namespace="default"
        )
        await this.client.delete_collection(ConfigMap, namespace="default", labels={"tier": "web"})
        for _ in range(2):
            found = {metadata_of(obj).name: metadata_of(obj) for obj in await this.client.list(ConfigMap)}
            assert sorted(map(str, found)) == ["held", "moved", "other"]
            assert found["held"].deletionTimestamp is not None
            await anyio.sleep(60)


async def test_a_collection_of_a_kind_that_is_not_watched_costs_no_list() -> None:
    async with world(ConfigMap) as this:
        await this.client.delete_collection(Secret, namespace="default")
        await this.client.delete_collection(ConfigMap, namespace="default", dry_run=True)
        assert this.transport.requests == ["DELETE", "DELETE"]


async def test_an_object_whose_deletion_is_answered_with_its_last_state_is_gone_from_the_next_read() -> None:
    """Service accounts, services, volume claims and pods are answered so."""
    async with world(ServiceAccount, lag=5) as this:
        await this.client.create(ServiceAccount(metadata=ObjectMeta(name="robot", namespace="default")))
        await this.client.delete(ServiceAccount, "robot", namespace="default")
        assert await this.client.find(ServiceAccount, "robot", namespace="default") is None
        await anyio.sleep(60)
        assert await this.client.find(ServiceAccount, "robot", namespace="default") is None


async def test_lists_over_all_namespaces_come_from_the_caches_of_the_namespaces_that_are_watched() -> None:
    places = ["default", "kube-system"]
    async with ApiServer() as server:
        this = World(server, namespaces=places)
        for place in places:
            this.informers.informer(ConfigMap, place)
            this.informers.informer(Secret, place, "tier=web")
            await this.other.create(ConfigMap(metadata=ObjectMeta(name=f"in-{place}", namespace=place)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            with pytest.raises(CacheNotSyncedError):
                await this.client.list(ConfigMap)
            await this.informers.wait_synced()
            this.transport.requests.clear()
            found = await this.client.list(ConfigMap)
            assert [metadata_of(obj).name for obj in found] == ["in-default", "in-kube-system"]
            assert len(await this.client.list(ConfigMap, fields={"metadata.namespace": "default"})) == 1
            assert [obj async for obj in this.client.stream(ConfigMap, labels="none=such")] == []
            assert await this.client.list(Secret, labels={"tier": "web"}) == []
            assert this.transport.requests == []
            with pytest.raises(ObjectError, match="which namespace"):
                await this.client.get(ConfigMap, "in-default")
            assert await this.client.list(ConfigMap, namespace="kube-public") == []
            assert this.transport.requests == ["GET"]  # a namespace that is not watched
            tasks.cancel_scope.cancel()
