"""What both type checkers have to say about the client (M04). Never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Self, assert_type

import msgspec
from lightkube import AsyncClient
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.generic_resource import GenericNamespacedResource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap

from opsdk.client import ApiClient, ApiStatusWriter, RawClient, RawEvent, RawPage
from opsdk.models import CustomResource, Model, PartialObjectMetadata, metadata_only, resource_of
from opsdk.protocols import (
    Added,
    Bookmark,
    Client,
    Deleted,
    Modified,
    ObjectList,
    Reader,
    Snapshot,
    StatusWriter,
    Undecodable,
    Watcher,
    WatchEvent,
    Writer,
)
from opsdk.types import JsonObject, JsonPatch, MergePatch, Preconditions


class WidgetSpec(Model):
    size: int = 1


class Widget(CustomResource[WidgetSpec], group="demo.example.com", version="v1"):
    pass


class Handmade:
    """Neither pydantic nor a struct; has no metadata either."""


async def reads(client: ApiClient, protocol: Client) -> None:
    assert_type(await client.get(Widget, "w"), Widget)
    assert_type(await client.get(Deployment, "d", namespace="n"), Deployment)
    assert_type(await client.find(Widget, "w", namespace="n"), Widget | None)
    assert_type(await client.list(Widget, labels={"a": "b"}), ObjectList[Widget])
    assert_type((await client.list(Widget, labels="a in (b)"))[0], Widget)
    assert_type((await client.list(Widget)).resource_version, str)
    assert_type(client.stream(Widget), AsyncIterator[Widget | Undecodable])
    assert_type(await protocol.get(Widget, "w"), Widget)
    assert_type(await protocol.find(ConfigMap, "c"), ConfigMap | None)
    assert_type(await protocol.list(ConfigMap), ObjectList[ConfigMap])


async def writes(client: ApiClient, widget: Widget) -> None:
    assert_type(await client.create(widget), Widget)
    assert_type(await client.replace(widget, dry_run=True), Widget)
    assert_type(await client.patch(Widget, "w", MergePatch({"spec": {"size": 2}})), Widget)
    assert_type(await client.apply(widget, force=True), Widget)
    assert_type(client.snapshot(widget), Snapshot[Widget])
    assert_type(await client.patch_from(client.snapshot(widget), widget), Widget | None)
    await client.delete(Widget, "w", preconditions=Preconditions(uid="u"), propagation="Foreground")
    assert_type(client.status, ApiStatusWriter)
    assert_type(await client.status.replace(widget), Widget)
    assert_type(await client.status.patch(Widget, "w", JsonPatch([])), Widget)
    assert_type(await client.status.patch_from(client.snapshot(widget), widget), Widget | None)
    assert_type(await client.status.apply(widget), Widget)


class GizmoSpec(msgspec.Struct):
    size: int = 1


class Gizmo(NamespacedResourceG, msgspec.Struct):
    """A struct of the user's own."""

    _api_info = ApiInfo(resource=ResourceDef("demo.example.com", "v1", "Gizmo"), plural="gizmos", verbs=["get"])

    apiVersion: str | None = None  # noqa: N815 - Kubernetes' own name
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: GizmoSpec | None = None


class Gadget:
    """A class with a codec of its own; attributes or properties, both are fine."""

    _api_info = ApiInfo(resource=ResourceDef("demo.example.com", "v1", "Gadget"), plural="gadgets", verbs=["get"])

    def __init__(self, metadata: ObjectMeta | None, size: int) -> None:
        self._metadata = metadata
        self.size = size

    @property
    def metadata(self) -> ObjectMeta | None:
        return self._metadata

    @classmethod
    def from_wire(cls, document: JsonObject, /) -> Self:
        return cls(None, len(document))

    def to_wire(self) -> JsonObject:
        return {"spec": {"size": self.size}}


async def families(client: ApiClient, generic: type[GenericNamespacedResource]) -> None:
    assert_type(await client.get(Gizmo, "g", namespace="n"), Gizmo)
    assert_type(await client.list(Gizmo), ObjectList[Gizmo])
    assert_type(await client.get(Gadget, "g", namespace="n"), Gadget)
    assert_type(await client.create(Gadget(None, 1)), Gadget)
    assert_type((await client.status.replace(Gadget(None, 1))).size, int)
    assert_type(await client.get(generic, "g", namespace="n"), GenericNamespacedResource)
    assert_type(await client.list(generic), ObjectList[GenericNamespacedResource])


async def below(client: ApiClient) -> None:
    assert_type(client.raw, RawClient)
    assert_type(client.lightkube(), AsyncClient)
    assert_type(client.document(Gizmo()), bytes | None)
    assert_type(await client.delete_raw(Gizmo, "g", namespace="n"), bytes)


async def watches(client: ApiClient) -> None:
    async with client.watch(Widget, timeout=timedelta(minutes=5)) as events:
        assert_type(events, AsyncIterator[WatchEvent[Widget]])
        async for event in events:
            match event:
                case Added(obj):
                    assert_type(obj, Widget)
                case Modified(obj):
                    assert_type(obj, Widget)
                case Deleted(obj):
                    assert_type(obj, Widget)
                case Bookmark(version):
                    assert_type(version, str)
                case Undecodable():
                    assert_type(event.error.field, str)


async def raw(client: RawClient) -> None:
    assert_type(await client.request("GET", "/version"), bytes)
    assert_type(await client.list_page(resource_of(Widget)), RawPage)
    async with client.watch(resource_of(Widget)) as events:
        assert_type(events, AsyncIterator[RawEvent])


def capabilities(client: ApiClient) -> tuple[Client, Reader, Writer, Watcher, StatusWriter]:
    return client, client, client, client, client.status


async def refused(client: ApiClient, widget: Widget, deployment: Deployment) -> None:
    await client.get(Handmade, "h")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await client.get("Widget", "w")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await client.get(Widget)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await client.get(Widget, "w", "n")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await client.create(Handmade())  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await client.create({"kind": "Widget"})  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await client.replace(widget, "me")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await client.patch(Widget, "w", {"spec": {}})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await client.delete(widget, "w")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await client.find(Gizmo, name=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await client.apply(Gizmo)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await client.list(Gizmo, labels=["a"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    gizmo: Gizmo = await client.get(Widget, "w")  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    assert_type(gizmo, Gizmo)
    base = client.snapshot(widget)
    await client.patch_from(base, deployment)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await client.delete(Widget, "w", propagation="Sideways")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await client.status.patch(Widget, "w", MergePatch(["x"]))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with client.watch(Widget, timeout=5):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        pass


async def metadata_alone(client: ApiClient) -> None:
    assert_type(metadata_only(Widget), type[PartialObjectMetadata])
    assert_type(await client.get(metadata_only(ConfigMap), "c", namespace="n"), PartialObjectMetadata)
    assert_type((await client.list(metadata_only(ConfigMap)))[0].metadata, ObjectMeta | None)
    metadata_only(Handmade)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - has no metadata
