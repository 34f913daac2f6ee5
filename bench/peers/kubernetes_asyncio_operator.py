"""The operator of the benchmarks on kubernetes-asyncio: list, watch, queue and workers by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from by_hand import WORKERS, Keys, run, status_of, terminated
from kubernetes_asyncio import client, config, watch
from reporting import Seen, arguments, tell

Changed: TypeAlias = Callable[[Any, Any], None]
WIDGETS: Any = {"group": "bench.opsdk.dev", "version": "v1", "plural": "widgets"}

given = arguments()


def name_of(obj: Any) -> str:
    """Custom objects are dictionaries, the others have a class."""
    name: str = obj["metadata"]["name"] if isinstance(obj, dict) else obj.metadata.name
    return name


class Followed:
    """The objects of a kind, kept up to date."""

    def __init__(self, read: Any, changed: Changed | None = None, **place: str) -> None:
        self.objects: dict[str, Any] = {}
        self.synced = asyncio.Event()
        self._read = read
        self._place = {"namespace": given.namespace, **place}
        self._changed = changed

    async def follow(self) -> None:
        while True:
            page = await self._read(**self._place)
            raw = isinstance(page, dict)
            self.objects = {name_of(obj): obj for obj in (page["items"] if raw else page.items)}
            version = page["metadata"]["resourceVersion"] if raw else page.metadata.resource_version
            del page
            self.synced.set()
            if self._changed is not None:
                for obj in list(self.objects.values()):
                    self._changed(None, obj)
            try:
                async with watch.Watch().stream(self._read, resource_version=version, **self._place) as events:
                    async for event in events:
                        self._take(event["type"], event["object"])
            except client.ApiException as error:
                if error.status != 410:
                    raise

    def _take(self, event: str, obj: Any) -> None:
        if event == "BOOKMARK":
            return
        name = name_of(obj)
        before = self.objects.pop(name, None)
        if event != "DELETED":
            self.objects[name] = obj
        if self._changed is not None:
            self._changed(before, obj)


class Converging:
    """Gives each Widget a ConfigMap and a status."""

    def __init__(self, api: Any) -> None:
        self._core = client.CoreV1Api(api)
        self._custom: Any = client.CustomObjectsApi(api)  # its stubs do not know what every call takes
        self.keys = Keys()
        self.widgets = Followed(self._custom.list_namespaced_custom_object, self._widget_changed, **WIDGETS)
        self.children = Followed(self._core.list_namespaced_config_map, self._child_changed)
        self.reconciles = 0

    def _widget_changed(self, before: Any, after: Any) -> None:
        if before is None or before["metadata"]["generation"] != after["metadata"]["generation"]:
            self.keys.add(name_of(after))

    def _child_changed(self, _before: Any, after: Any) -> None:
        for owner in after.metadata.owner_references or ():
            if owner.kind == "Widget" and owner.controller:
                self.keys.add(owner.name)

    async def reconcile(self, key: str) -> None:
        self.reconciles += 1
        widget = self.widgets.objects.get(key)
        if widget is None:
            return
        metadata, spec, status = widget["metadata"], widget["spec"], widget.get("status", {})
        data = {"size": str(spec["size"]), "note": spec.get("note", "")}
        child = self.children.objects.get(key)
        if child is None or child.data != data:
            await self._write(key, metadata["uid"], data, replace=child is not None)
        ready = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), None)
        generation = metadata["generation"]
        if ready is None or ready["status"] != "True" or status.get("observedGeneration") != generation:
            patch = {"status": status_of(generation, ready and ready["lastTransitionTime"])}
            await self._custom.patch_namespaced_custom_object_status(
                name=key,
                namespace=given.namespace,
                body=patch,
                _content_type="application/merge-patch+json",
                **WIDGETS,
            )
        if self.reconciles <= 1:
            tell("first", 1)

    async def _write(self, name: str, uid: str, data: dict[str, str], *, replace: bool) -> None:
        owner = client.V1OwnerReference(
            api_version="bench.opsdk.dev/v1",
            kind="Widget",
            name=name,
            uid=uid,
            controller=True,
            block_owner_deletion=True,
        )
        metadata = client.V1ObjectMeta(
            name=name, namespace=given.namespace, labels={"app": "bench-child"}, owner_references=[owner]
        )
        child = client.V1ConfigMap(metadata=metadata, data=data)
        if not replace:
            try:
                await self._core.create_namespaced_config_map(given.namespace, child)
                return
            except client.ApiException as error:
                if error.status != 409:
                    raise
        await self._core.replace_namespaced_config_map(name, given.namespace, child)


async def main() -> None:
    await config.load_kube_config()
    configuration = client.Configuration.get_default_copy()
    configuration.connection_pool_maxsize = 100
    async with client.ApiClient(configuration) as api:
        if given.workload == "sync":
            if given.kind == "configmaps":
                followed = Followed(client.CoreV1Api(api).list_namespaced_config_map)
            else:
                followed = Followed(client.CustomObjectsApi(api).list_namespaced_custom_object, **WIDGETS)

            async def wait() -> None:
                await followed.synced.wait()
                tell("synced", len(followed.objects))
                await asyncio.Event().wait()

            await run(followed.follow(), wait(), terminated())
            tell("ended")
        elif given.workload == "noop":
            seen, keys = Seen(given.count, given.label), Keys()
            read = client.CustomObjectsApi(api).list_namespaced_custom_object
            widgets = Followed(read, lambda _, after: keys.add(name_of(after)), **WIDGETS)

            async def look(key: str) -> None:
                widget = widgets.objects.get(key)
                if widget is not None:
                    seen.look(key, widget["metadata"]["labels"]["round"])

            await run(widgets.follow(), terminated(), *(keys.work(look, client.ApiException) for _ in range(WORKERS)))
            tell("ended", seen.looks)
        else:
            converging = Converging(api)

            async def work() -> None:
                await converging.children.synced.wait()
                await converging.widgets.synced.wait()
                await run(*(converging.keys.work(converging.reconcile, client.ApiException) for _ in range(WORKERS)))

            await run(converging.children.follow(), converging.widgets.follow(), work(), terminated())
            tell("ended", converging.reconciles)


asyncio.run(main())
