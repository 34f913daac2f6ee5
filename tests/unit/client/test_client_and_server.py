"""The whole client against the in-memory API server: in process, and over HTTP through every transport. One suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Protocol

import anyio
import pytest
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, ContainerPort, PodSpec, PodTemplateSpec, ServicePort, ServiceSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Service
from pydantic import Field

from opsdk.client import ApiClient, ClientConfig, HttpxTransport, LeanTransport, Transport, refresh_metadata
from opsdk.errors import (
    AlreadyExistsError,
    ApiStatusError,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnsupportedMediaTypeError,
)
from opsdk.models import CustomResource, Model, metadata_of, view_of
from opsdk.protocols import Added, Deleted, Modified
from opsdk.testing import ApiServer
from opsdk.types import JsonPatch, MergePatch, Preconditions, StrategicMergePatch

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param  # in real time: the suite also goes over sockets


class Part(Model):
    name: str
    size: int = 1


class WidgetSpec(Model):
    size: int = Field(default=1, ge=0)
    parts: list[Part] = Field(default_factory=list[Part])


class WidgetStatus(Model):
    ready: int = 0


class Widget(CustomResource[WidgetSpec, WidgetStatus], group="demo.example.com", version="v1"):
    """What a program of today knows."""


class FuturePart(Model):
    name: str
    size: int = 1
    new: str | None = None


class FutureSpec(Model):
    size: int = Field(default=1, ge=0)
    new: str | None = None
    parts: list[FuturePart] = Field(default_factory=list[FuturePart])


class FutureWidget(
    CustomResource[FutureSpec, WidgetStatus], group="demo.example.com", version="v1", kind="Widget", plural="widgets"
):
    """What the cluster stores: fields that `Widget` has never heard of."""


Cluster = Callable[[], AbstractAsyncContextManager[tuple[ApiServer, ApiClient]]]

TRANSPORTS: dict[str, Callable[[ClientConfig], Transport]] = {"httpx2": HttpxTransport, "lean": LeanTransport}


@pytest.fixture(params=["memory", *TRANSPORTS])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A server with the CRD of `FutureWidget` and the namespace `n`, and a client of it."""
    make = TRANSPORTS.get(str(request.param))

    @asynccontextmanager
    async def open_cluster() -> AsyncGenerator[tuple[ApiServer, ApiClient]]:
        async with ApiServer() as server:
            await server.install(FutureWidget)
            await server.client().create(Namespace(metadata=ObjectMeta(name="n")))
            if make is None:
                yield server, server.client()
                return
            async with server.serve() as served:
                config = ClientConfig.from_dict(
                    {
                        "current-context": "x",
                        "clusters": [{"name": "x", "cluster": {"server": served.url}}],
                        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
                    }
                )
                async with ApiClient(make(config)) as client:
                    yield server, client

    return open_cluster


def future(name: str = "w", *, size: int = 1) -> FutureWidget:
    return FutureWidget(
        metadata=ObjectMeta(name=name, namespace="n"),
        spec=FutureSpec(size=size, new="x", parts=[FuturePart(name="a", new="1"), FuturePart(name="b", new="2")]),
    )


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="n", labels={"app": "x"}), data=dict(data))


class HasData(Protocol):
    @property
    def data(self) -> Mapping[str, str] | None: ...


def data_of(obj: HasData) -> Mapping[str, str] | None:
    """Lightkube says a bare dict."""
    return obj.data


async def test_an_object_lives_from_create_to_delete(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        assert await client.find(Widget, "w", namespace="n") is None
        created = await client.create(Widget(metadata=ObjectMeta(name="w", namespace="n"), spec=WidgetSpec(size=2)))
        assert created.metadata.generation == 1
        with pytest.raises(AlreadyExistsError) as exists:
            await client.create(Widget(metadata=ObjectMeta(name="w", namespace="n"), spec=WidgetSpec()))
        assert exists.value.name == "w"
        found = await client.get(Widget, "w", namespace="n")
        assert found.spec.size == 2
        await client.delete(Widget, "w", namespace="n", preconditions=Preconditions(uid=found.metadata.uid))
        with pytest.raises(NotFoundError) as gone:
            await client.get(Widget, "w", namespace="n")
        assert (gone.value.reason, gone.value.name) == ("NotFound", "w")


async def test_an_invalid_object_is_refused_with_the_field_that_is_wrong(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        obj = future()
        obj.spec.size = -1
        with pytest.raises(InvalidError) as caught:
            await client.create(obj)
        assert [cause.field for cause in caught.value.causes] == ["spec.size"]


async def test_m03_o03_a_program_of_today_keeps_what_tomorrow_stored(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        await client.create(future())

        old = await client.get(Widget, "w", namespace="n")
        base = client.snapshot(old)
        old.spec.parts[1].size = 5
        old.metadata.labels = {"l": "1"}
        patched = await client.patch_from(base, old)
        assert patched is not None
        patched.spec.parts.insert(0, Part(name="c"))
        patched.spec.size = 3
        await client.replace(patched)

        now = await client.get(FutureWidget, "w", namespace="n")
        assert (now.spec.size, now.spec.new, view_of(now).labels) == (3, "x", {"l": "1"})
        assert [(part.name, part.size, part.new) for part in now.spec.parts] == [
            ("c", 1, None),
            ("a", 1, "1"),
            ("b", 5, "2"),
        ]


async def test_a_write_on_top_of_somebody_elses_is_a_conflict(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        await client.create(future())
        mine = await client.get(Widget, "w", namespace="n")
        base = client.snapshot(mine)
        await client.patch(Widget, "w", MergePatch({"spec": {"size": 7}}), namespace="n")
        mine.spec.size = 8
        mine.status.ready = 1
        for write in (
            client.patch_from(base, mine),
            client.status.patch_from(base, mine),
            client.replace(mine),
            client.status.replace(mine),
        ):
            with pytest.raises(ConflictError):
                await write
        assert (await client.get(Widget, "w", namespace="n")).spec.size == 7


async def test_an_object_that_was_made_again_under_its_name_is_a_conflict(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        mine = await client.create(future())
        base = client.snapshot(mine)
        await client.delete(FutureWidget, "w", namespace="n")
        await client.create(future())
        mine.spec.size = 8
        with pytest.raises(ConflictError):
            await client.patch_from(base, mine)
        with pytest.raises(ConflictError):
            await client.delete(FutureWidget, "w", namespace="n", preconditions=Preconditions(uid=mine.metadata.uid))


async def test_status_and_the_rest_are_written_apart(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        obj = await client.create(Widget(metadata=ObjectMeta(name="w", namespace="n"), spec=WidgetSpec()))
        base = client.snapshot(obj)
        obj.status.ready = 4
        obj.spec.size = 9
        stored = await client.status.patch_from(base, obj)
        assert stored is not None
        assert (stored.status.ready, stored.spec.size, stored.metadata.generation) == (4, 1, 1)
        refresh_metadata(obj, stored)
        stored = await client.patch_from(base, obj)
        assert stored is not None
        assert (stored.status.ready, stored.spec.size, stored.metadata.generation) == (4, 9, 2)
        stored.status.ready = 5
        stored = await client.status.replace(stored)
        assert stored.status.ready == 5
        stored = await client.status.patch(Widget, "w", MergePatch({"status": {"ready": 6}}), namespace="n")
        assert stored.status.ready == 6
        again = client.snapshot(stored)
        assert await client.patch_from(again, stored) is None
        assert await client.status.patch_from(again, stored) is None


async def test_o04_two_programs_change_finalizers_and_both_changes_stand(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        obj = future()
        obj.metadata.finalizers = ["a/ours"]
        mine = await client.create(obj)
        base = client.snapshot(mine)
        await client.patch(
            FutureWidget,
            "w",
            JsonPatch([{"op": "add", "path": "/metadata/finalizers/-", "value": "b/theirs"}]),
            namespace="n",
        )
        mine.metadata.finalizers = []
        with pytest.raises(ConflictError):
            await client.patch_from(base, mine)
        mine = await client.get(FutureWidget, "w", namespace="n")
        base = client.snapshot(mine)
        mine.metadata.finalizers = [one for one in mine.metadata.finalizers or () if one != "a/ours"]
        stored = await client.patch_from(base, mine)
        assert stored is not None
        assert stored.metadata.finalizers == ["b/theirs"]


async def test_o01_defaults_of_the_server_are_no_difference(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        deployment = await client.create(
            Deployment(
                metadata=ObjectMeta(name="d", namespace="n"),
                spec=DeploymentSpec(
                    selector=LabelSelector(matchLabels={"a": "b"}),
                    template=PodTemplateSpec(
                        metadata=ObjectMeta(labels={"a": "b"}),
                        spec=PodSpec(
                            containers=[Container(name="c", image="i", ports=[ContainerPort(containerPort=80)])]
                        ),
                    ),
                ),
            )
        )
        base = client.snapshot(deployment)
        assert deployment.spec is not None
        assert deployment.spec.template.spec is not None
        (container,) = deployment.spec.template.spec.containers
        container.image = "j"
        stored = await client.patch_from(base, deployment)
        assert stored is not None
        assert stored.spec is not None
        assert stored.spec.template.spec is not None
        assert stored.spec.template.spec.containers[0].image == "j"
        service = await client.create(
            Service(metadata=ObjectMeta(name="s", namespace="n"), spec=ServiceSpec(ports=[ServicePort(port=80)]))
        )
        before = metadata_of(service).resourceVersion
        stored_service = await client.replace(service)
        assert metadata_of(stored_service).resourceVersion == before, "a replace without a change changes nothing"


async def test_apply_owns_what_it_sets_and_takes_nothing_by_force_unless_told(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        obj = config_map("c", k="1")
        stored = await client.apply(obj, field_manager="one")
        assert [entry.manager for entry in metadata_of(stored).managedFields or ()] == ["one"]
        with pytest.raises(ConflictError, match="one"):
            await client.apply(config_map("c", k="2"), field_manager="two")
        stored = await client.apply(config_map("c", k="2"), field_manager="two", force=True)
        assert data_of(stored) == {"k": "2"}
        again = await client.apply(stored, field_manager="two", force=True)
        assert data_of(again) == {"k": "2"}, "what was read can be applied: managedFields are left out"


async def test_a_custom_resource_and_its_status_can_be_applied(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        wanted = Widget(metadata=ObjectMeta(name="w", namespace="n"), spec=WidgetSpec(size=4))
        await client.apply(wanted)
        wanted.status = WidgetStatus(ready=2)
        stored = await client.status.apply(wanted)
        assert (stored.spec.size, stored.status.ready) == (4, 2)


async def test_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    async with cluster() as (server, client):
        stored = await client.create(config_map("c", k="1"))
        version = server.resource_version
        await client.create(config_map("d"), dry_run=True)
        base = client.snapshot(stored)
        stored.data = {"k": "2"}
        tried = await client.patch_from(base, stored, dry_run=True)
        assert tried is not None
        assert data_of(tried) == {"k": "2"}
        await client.replace(stored, dry_run=True)
        await client.apply(config_map("e"), dry_run=True)
        await client.delete(ConfigMap, "c", namespace="n", dry_run=True)
        await client.delete_collection(ConfigMap, namespace="n", dry_run=True)
        assert server.resource_version == version


async def test_patches_of_every_kind(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        await client.create(config_map("c", a="1", b="2"))
        await client.create(future())
        stored = await client.patch(ConfigMap, "c", MergePatch({"data": {"a": None}}), namespace="n")
        assert data_of(stored) == {"b": "2"}
        stored = await client.patch(
            ConfigMap, "c", JsonPatch([{"op": "test", "path": "/data/b", "value": "2"}]), namespace="n"
        )
        stored = await client.patch(ConfigMap, "c", StrategicMergePatch({"data": {"c": "3"}}), namespace="n")
        assert data_of(stored) == {"b": "2", "c": "3"}
        with pytest.raises(UnsupportedMediaTypeError):
            await client.patch(Widget, "w", StrategicMergePatch({"spec": {"size": 2}}), namespace="n")


async def test_a_resource_version_on_create_is_refused_not_hidden(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        stored = await client.create(config_map("c"))
        metadata_of(stored).name = "d"
        # Kube-apiserver says 400 for some kinds and 500 for others.
        with pytest.raises(ApiStatusError, match="resourceVersion should not be set"):
            await client.create(stored)


async def test_w07_w08_a_long_list_is_whole_even_when_its_history_is_forgotten_on_the_way(cluster: Cluster) -> None:
    async with cluster() as (server, client):
        for number in range(1201):
            await server.client().create(config_map(f"c{number:04}"))
        found = await client.list(ConfigMap, namespace="n", labels={"app": "x"})
        assert len(found) == 1201
        assert found.resource_version == server.resource_version
        assert await client.list(ConfigMap, labels="app in (y)") == []
        assert len(await client.list(ConfigMap, fields={"metadata.name": "c0007"})) == 1

        names: list[str | None] = []
        async for one in client.stream(ConfigMap, namespace="n", labels={"app": "x"}, page_size=400):
            assert isinstance(one, ConfigMap)
            names.append(metadata_of(one).name)
            if len(names) == 500:
                await server.client().create(config_map("c0000-late"))
                server.compact()
        assert sorted(filter(None, names)) == sorted([*(f"c{number:04}" for number in range(1201)), "c0000-late"])


async def test_delete_collection_deletes_what_matches_in_one_namespace(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        await client.create(config_map("a"))
        await client.create(config_map("b"))
        other = config_map("c")
        metadata_of(other).labels = {"app": "y"}
        await client.create(other)
        await client.delete_collection(ConfigMap, namespace="n", labels={"app": "x"})
        assert [metadata_of(one).name for one in await client.list(ConfigMap, namespace="n", labels="app")] == ["c"]


async def test_a_watch_goes_on_from_a_list(cluster: Cluster) -> None:
    async with cluster() as (server, client):
        await client.create(config_map("a"))
        found = await client.list(ConfigMap, namespace="n")
        async with client.watch(ConfigMap, namespace="n", resource_version=found.resource_version) as events:
            stored = await client.create(config_map("b", k="1"))
            base = client.snapshot(stored)
            stored.data = {"k": "2"}
            await client.patch_from(base, stored)
            await client.delete(ConfigMap, "b", namespace="n")
            with anyio.fail_after(5):
                added, modified, deleted = [await anext(events) for _ in range(3)]
        assert isinstance(added, Added)
        assert isinstance(modified, Modified)
        assert isinstance(deleted, Deleted)
        assert [data_of(one.object) for one in (added, modified, deleted)] == [{"k": "1"}, {"k": "2"}, {"k": "2"}]
        with anyio.fail_after(5):
            while server.open_watches:  # noqa: ASYNC110 - the server notices by itself
                await anyio.sleep(0.01)


async def test_a_watch_from_nowhere_begins_with_what_there_is_and_ends_when_the_server_says(cluster: Cluster) -> None:
    async with cluster() as (_, client):
        await client.create(config_map("a"))
        with anyio.fail_after(10):
            async with client.watch(ConfigMap, namespace="n", timeout=timedelta(seconds=1)) as events:
                seen = [event async for event in events]
        added = [metadata_of(event.object).name for event in seen if isinstance(event, Added)]
        assert added.count("a") == 1


async def test_a_watch_from_a_forgotten_version_is_gone(cluster: Cluster) -> None:
    async with cluster() as (server, client):
        version = server.resource_version
        await client.create(config_map("a"))
        await client.delete(ConfigMap, "a", namespace="n")
        server.compact()
        with pytest.raises(GoneError), anyio.fail_after(5):
            async with client.watch(ConfigMap, namespace="n", resource_version=version) as events:
                await anext(events)


async def test_a_kind_that_is_not_installed_is_not_an_object_that_is_not_there(cluster: Cluster) -> None:
    class Gadget(CustomResource[WidgetSpec, WidgetStatus], group="other.example.com", version="v1"):
        pass

    async with cluster() as (_, client):
        with pytest.raises(NotFoundError):
            await client.find(Gadget, "g", namespace="n")
        with pytest.raises(NotFoundError):
            await client.list(Gadget)
