"""The operator of the benchmarks on plain lightkube: list, watch, queue and workers by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from by_hand import WORKERS, Keys, run, status_of, terminated
from lightkube import ApiError, AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType
from reporting import Seen, arguments, tell

Widget: Any = create_namespaced_resource("bench.opsdk.dev", "v1", "Widget", "widgets")
Changed: TypeAlias = Callable[[Any, Any], None]

given = arguments()


def name_of(obj: Any) -> str:
    """Generic resources hold their metadata as a dictionary until somebody reads it as more."""
    name: str = obj["metadata"]["name"] if isinstance(obj, dict) else obj.metadata.name
    return name


class Followed:
    """The objects of a kind, kept up to date."""

    def __init__(self, client: AsyncClient, kind: Any, changed: Changed | None = None) -> None:
        self.objects: dict[str, Any] = {}
        self.synced = asyncio.Event()
        self._client = client
        self._kind = kind
        self._changed = changed

    async def follow(self) -> None:
        while True:
            listed = self._client.list(self._kind, namespace=given.namespace)
            self.objects = {name_of(obj): obj async for obj in listed}
            version = listed.resourceVersion
            del listed
            self.synced.set()
            if self._changed is not None:
                for obj in list(self.objects.values()):
                    self._changed(None, obj)
            try:
                async for event, obj in self._client.watch(
                    self._kind, namespace=given.namespace, resource_version=version
                ):
                    self._take(event, obj)
            except ApiError as error:
                if error.status.code != 410:
                    raise

    def _take(self, event: str, obj: Any) -> None:
        name = name_of(obj)
        before = self.objects.pop(name, None)
        if event != "DELETED":
            self.objects[name] = obj
        if self._changed is not None:
            self._changed(before, obj)


class Converging:
    """Gives each Widget a ConfigMap and a status."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.keys = Keys()
        self.widgets = Followed(client, Widget, self._widget_changed)
        self.children = Followed(client, ConfigMap, self._child_changed)
        self.reconciles = 0

    def _widget_changed(self, before: Any, after: Any) -> None:
        if before is None or before["metadata"]["generation"] != after["metadata"]["generation"]:
            self.keys.add(name_of(after))

    def _child_changed(self, _before: Any, after: Any) -> None:
        for owner in after.metadata.ownerReferences or ():
            if owner.kind == "Widget" and owner.controller:
                self.keys.add(owner.name)

    async def reconcile(self, key: str) -> None:
        self.reconciles += 1
        widget = self.widgets.objects.get(key)
        if widget is None:
            return
        metadata, spec, status = widget["metadata"], widget["spec"], widget.get("status") or {}
        data = {"size": str(spec["size"]), "note": spec.get("note", "")}
        child = self.children.objects.get(key)
        if child is None or child.data != data:
            await self._write(key, metadata["uid"], data, replace=child is not None)
        ready = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), None)
        generation = metadata["generation"]
        if ready is None or ready["status"] != "True" or status.get("observedGeneration") != generation:
            patch = {"status": status_of(generation, ready and ready["lastTransitionTime"])}
            await self._client.patch(Widget.Status, key, patch, namespace=given.namespace, patch_type=PatchType.MERGE)
        if self.reconciles <= 1:
            tell("first", 1)

    async def _write(self, name: str, uid: str, data: dict[str, str], *, replace: bool) -> None:
        owner = OwnerReference(
            apiVersion="bench.opsdk.dev/v1", kind="Widget", name=name, uid=uid, controller=True, blockOwnerDeletion=True
        )
        labels = {"app": "bench-child"}
        metadata = ObjectMeta(name=name, namespace=given.namespace, labels=labels, ownerReferences=[owner])
        child = ConfigMap(metadata=metadata, data=data)
        if not replace:
            try:
                await self._client.create(child)
                return
            except ApiError as error:
                if error.status.code != 409:
                    raise
        await self._client.replace(child)


async def main() -> None:
    client = AsyncClient(field_manager="bench-lightkube")
    if given.workload == "sync":
        followed = Followed(client, ConfigMap if given.kind == "configmaps" else Widget)

        async def wait() -> None:
            await followed.synced.wait()
            tell("synced", len(followed.objects))
            await asyncio.Event().wait()

        await run(followed.follow(), wait(), terminated())
        tell("ended")
    elif given.workload == "noop":
        seen, keys = Seen(given.count, given.label), Keys()
        widgets = Followed(client, Widget, lambda _, after: keys.add(name_of(after)))

        async def look(key: str) -> None:
            widget = widgets.objects.get(key)
            if widget is not None:
                seen.look(key, widget["metadata"]["labels"]["round"])

        await run(widgets.follow(), terminated(), *(keys.work(look, ApiError) for _ in range(WORKERS)))
        tell("ended", seen.looks)
    else:
        converging = Converging(client)

        async def work() -> None:
            await converging.children.synced.wait()
            await converging.widgets.synced.wait()
            await run(*(converging.keys.work(converging.reconcile, ApiError) for _ in range(WORKERS)))

        await run(converging.children.follow(), converging.widgets.follow(), work(), terminated())
        tell("ended", converging.reconciles)


asyncio.run(main())
