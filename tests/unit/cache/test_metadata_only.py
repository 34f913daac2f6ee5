"""Informers of metadata: what they ask for, keep, hand out, and how they live with those of whole objects."""

from __future__ import annotations

from typing import Final

import anyio
import anyio.lowlevel
import msgspec
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Secret, ServiceAccount

from failing_network import Network, status
from opsdk.cache import (
    CachedClient,
    Change,
    Informers,
    ObjectAdded,
    ObjectDeleted,
    ObjectModified,
    ReflectorOptions,
    Store,
)
from opsdk.client import ApiClient, HttpRequest
from opsdk.errors import ObjectError
from opsdk.manager import Manager, ManagerOptions
from opsdk.models import (
    PartialObjectMetadata,
    codec_of,
    metadata_of,
    metadata_only,
    name_of,
    owner_reference_to,
    view_of,
)
from opsdk.testing import ApiServer
from opsdk.types import Json, MergePatch, Request, Result

pytestmark = pytest.mark.anyio

SecretMetadata: Final = metadata_only(Secret)
A: Final = Request("a", "default")


def secret(name: str, *, value: str = "aGlkZGVu", **labels: str) -> Secret:
    metadata = ObjectMeta(name=name, namespace="default", labels=labels, annotations={"note": name})
    return Secret(metadata=metadata, data={"password": value})


def data_of(obj: Secret) -> Json:
    document: dict[str, Json] = msgspec.json.decode(codec_of(Secret).encode(obj))
    return document["data"]


class World:
    """Informers of Secrets' metadata, and the server with them."""

    def __init__(self, server: ApiServer, options: ReflectorOptions) -> None:
        self.network = Network(server.transport())
        self.asked: list[str] = []
        self.network.on_list = self.network.on_watch = self._ask
        self.other = server.client(field_manager="someone-else")
        self.informers = Informers(ApiClient(self.network), options=options)
        self.client = CachedClient(ApiClient(self.network), self.informers)
        self.informer = self.informers.informer(SecretMetadata)
        self.changes: list[Change[PartialObjectMetadata]] = []
        self.informer.add_handler(self.changes.append)

    def _ask(self, request: HttpRequest) -> None:
        self.asked.append(request.headers["accept"])


@pytest.fixture(params=[False, True], ids=["pages", "stream"])
def options(request: pytest.FixtureRequest) -> ReflectorOptions:
    return ReflectorOptions(page_size=2, stream_lists=bool(request.param))


async def test_only_metadata_is_asked_for_kept_and_handed_out(options: ReflectorOptions) -> None:
    async with ApiServer() as server:
        this = World(server, options)
        for name in "abc":
            await this.other.create(secret(name, app="x"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            await this.informers.wait_synced()
            await this.other.create(secret("d", value="ZnJlc2g="))
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        assert all("as=PartialObjectMetadata" in accept for accept in this.asked)
        kept = {cached.header.name: cached for cached in this.informer.store.select()}
        assert sorted(kept) == ["a", "b", "c", "d"]
        assert not [cached for cached in kept.values() if b"password" in cached.raw or b"managedFields" in cached.raw]
        assert kept["a"].annotations() == {"note": "a"}
        found = this.informer.store.get(A)
        assert found is not None
        assert (found.apiVersion, found.kind, view_of(found).labels) == ("v1", "Secret", {"app": "x"})
        assert this.informer.describe() == "metadata of Secret.v1"


async def test_changes_of_what_is_not_metadata_are_told_too(options: ReflectorOptions) -> None:
    async with ApiServer() as server:
        this = World(server, options)
        await this.other.create(secret("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            await this.informers.wait_synced()
            await anyio.sleep(1)
            await this.other.patch(Secret, "a", MergePatch({"data": {"password": "bmV3"}}), namespace="default")
            await this.other.delete(Secret, "a", namespace="default")
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        assert [type(change) for change in this.changes] == [ObjectAdded, ObjectModified, ObjectDeleted]


def test_where_the_server_sends_the_whole_all_the_same_only_metadata_is_kept() -> None:
    whole = msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "a", "namespace": "default", "uid": "u", "labels": {"x": "y"}},
            "data": {"password": "aGlkZGVu"},
        }
    )
    cached = Store(SecretMetadata).read(whole)
    assert cached is not None
    assert msgspec.json.decode(cached.raw) == {"metadata": msgspec.json.decode(whole)["metadata"]}
    assert view_of(cached.decode()).labels == {"x": "y"}


async def test_what_is_written_through_metadata_is_read_at_once_in_both_forms_and_leaves_the_rest_alone() -> None:
    async with ApiServer() as server:
        this = World(server, ReflectorOptions())
        this.informers.informer(Secret)
        await this.other.create(secret("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            await this.informers.wait_synced()
            await anyio.sleep(1)
            this.network.frozen = True
            patch = MergePatch({"metadata": {"labels": {"seen": "yes"}}})
            answered = await this.client.patch(SecretMetadata, "a", patch, namespace="default")
            assert view_of(answered).labels == {"seen": "yes"}
            assert answered.kind == "Secret"
            partial = await this.client.get(SecretMetadata, "a", namespace="default")
            whole = await this.client.get(Secret, "a", namespace="default")
            assert view_of(partial).labels == view_of(whole).labels == {"seen": "yes"}
            base = this.client.snapshot(partial)
            metadata_of(partial).labels = {"seen": "twice"}
            assert await this.client.patch_from(base, partial) is not None
            assert view_of(await this.client.get(Secret, "a", namespace="default")).labels == {"seen": "twice"}
            read_elsewhere = await this.other.get(Secret, "a", namespace="default")
            assert data_of(read_elsewhere) == {"password": "aGlkZGVu"}
            tasks.cancel_scope.cancel()


async def test_m03_a_whole_object_that_was_also_read_as_metadata_is_written_whole() -> None:
    async with ApiServer() as server:
        this = World(server, ReflectorOptions())
        await this.other.create(secret("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            await this.informers.wait_synced()
            # Both of one version: what is remembered of it must be the whole.
            await this.client.uncached.get(SecretMetadata, "a", namespace="default")
            [_ async for _ in this.client.uncached.stream(SecretMetadata)]
            await this.client.uncached.list(SecretMetadata)
            whole = await this.other.get(Secret, "a", namespace="default")
            metadata_of(whole).labels = {"x": "y"}
            await this.client.replace(whole)
            read_elsewhere = await this.other.get(Secret, "a", namespace="default")
            assert data_of(read_elsewhere) == {"password": "aGlkZGVu"}
            assert view_of(read_elsewhere).labels == {"x": "y"}
            tasks.cancel_scope.cancel()


async def test_metadata_alone_cannot_be_created_or_replace_an_object() -> None:
    async with ApiServer() as server:
        client = server.client()
        await client.create(secret("a"))
        found = await client.get(SecretMetadata, "a", namespace="default")
        for write in (client.create, client.replace):
            with pytest.raises(ObjectError, match="of this Secret there is nothing but metadata"):
                await write(found)
        await client.delete(SecretMetadata, "a", namespace="default")
        assert await client.find(SecretMetadata, "a", namespace="default") is None


async def test_metadata_alone_is_applied_by_a_field_manager_of_its_own_so_that_the_rest_stays() -> None:
    async with ApiServer() as server:
        client = server.client()
        await client.apply(secret("a", app="x"))
        labelled = SecretMetadata(metadata=ObjectMeta(name="a", namespace="default", labels={"k": "v"}))
        for field_manager in (None, client.field_manager):
            with pytest.raises(ObjectError, match="its field manager 'opsdk'"):
                await client.apply(labelled, force=True, field_manager=field_manager)
        assert view_of(await client.apply(labelled, field_manager="labels")).labels == {"app": "x", "k": "v"}
        assert data_of(await client.get(Secret, "a", namespace="default")) == {"password": "aGlkZGVu"}


async def test_w01_what_is_deleted_while_the_watch_is_down_is_told_of_metadata_too(options: ReflectorOptions) -> None:
    async with ApiServer() as server:
        this = World(server, options)
        for name in "abc":
            await this.other.create(secret(name))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informers.run)
            await this.informers.wait_synced()
            await anyio.sleep(1)
            this.changes.clear()
            answers = [status(410, "Expired")]
            this.network.on_watch = lambda request: (
                answers.pop() if answers and dict(request.query).get("resourceVersion") else None
            )
            this.network.cut()
            await anyio.sleep(0.1)
            await this.other.delete(Secret, "b", namespace="default")
            await anyio.sleep(60)
            (change,) = this.changes
            assert isinstance(change, ObjectDeleted)
            assert change.old.header.name == "b"
            tasks.cancel_scope.cancel()


def test_each_kind_has_one_class_for_its_metadata() -> None:
    assert metadata_only(Secret) is SecretMetadata
    assert metadata_only(SecretMetadata) is SecretMetadata
    assert metadata_only(ConfigMap) is not SecretMetadata
    assert SecretMetadata.__name__ == "SecretMetadata"


async def test_a_controller_owns_and_watches_metadata() -> None:
    options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)
    async with ApiServer() as server:
        network, asked = Network(server.transport()), dict[str, set[str]]()

        def ask(request: HttpRequest) -> None:
            asked.setdefault(request.path.rpartition("/")[2], set()).add(request.headers["accept"])

        network.on_list = network.on_watch = ask
        client = server.client()
        owner = await client.create(ConfigMap(metadata=ObjectMeta(name="owner", namespace="default")))
        manager = Manager(options, client=ApiClient(network))
        reconciled: list[Request] = []

        async def reconcile(request: Request) -> Result:
            await anyio.lowlevel.checkpoint()
            reconciled.append(request)
            return Result()

        def config_of(account: PartialObjectMetadata) -> list[Request]:
            return [Request(name_of(account), "default")]

        (
            manager.controller(ConfigMap)
            .owns(SecretMetadata)
            .watches(metadata_only(ServiceAccount), map=config_of)
            .complete(reconcile)
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(5)
            reconciled.clear()
            child = secret("child")
            metadata_of(child).ownerReferences = [owner_reference_to(owner)]
            await client.create(child)
            await anyio.sleep(1)
            assert reconciled == [Request("owner", "default")]
            await client.create(ServiceAccount(metadata=ObjectMeta(name="mapped", namespace="default")))
            await anyio.sleep(1)
            assert reconciled[1:] == [Request("mapped", "default")]
            manager.stop()
        for plural, whole in (("secrets", False), ("serviceaccounts", False), ("configmaps", True)):
            assert all(("as=PartialObjectMetadata" not in accept) == whole for accept in asked[plural])
