"""The operator of the benchmarks on cloudcoil: its informers; queue and workers by hand, as it has no controllers.

Its informer (0.6.0) lists one page, of 500 by default and 5,000 at most, and tells handlers nothing of what it lists.
So the page is made larger by a private field, beyond that the list is read page by page past the informer, and what the
informer has listed is put into the queue by hand.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import cloudcoil.client  # before `caching`, which cannot be imported first
import httpx
from by_hand import WORKERS, Keys, run, terminated
from cloudcoil.apimachinery import Condition, ObjectMeta, OwnerReference
from cloudcoil.caching import Cache
from cloudcoil.errors import ResourceConflict
from cloudcoil.pydantic import BaseModel
from cloudcoil.resources import Resource
from pydantic import Field
from reporting import Seen, arguments, tell

LARGEST_PAGE = 5_000

given = arguments()


class ConfigMap(Resource):
    api_version: Annotated[Literal["v1"], Field(alias="apiVersion")] = "v1"
    kind: Literal["ConfigMap"] = "ConfigMap"
    data: dict[str, str] | None = None


class WidgetSpec(BaseModel):
    size: int
    note: str = ""


class WidgetStatus(BaseModel):
    observed_generation: Annotated[int | None, Field(alias="observedGeneration")] = None
    conditions: list[Condition] | None = None


class Widget(Resource):
    api_version: Annotated[Literal["bench.opsdk.dev/v1"], Field(alias="apiVersion")] = "bench.opsdk.dev/v1"
    kind: Literal["Widget"] = "Widget"
    spec: WidgetSpec
    status: WidgetStatus | None = None


class RetryLater(Exception):
    """The write met another, or what is to be there is there already."""


class Converging:
    """Gives each Widget a ConfigMap and a status."""

    def __init__(self, widgets: Any, children: Any) -> None:
        self.keys = Keys()
        self.reconciles = 0
        self._widgets = widgets
        self._children = children

    async def widget_changed(self, before: Any, after: Any) -> None:
        if before is None or before.metadata.generation != after.metadata.generation:
            self.keys.add(after.metadata.name)

    async def child_changed(self, *versions: Any) -> None:
        for owner in versions[-1].metadata.owner_references or ():
            if owner.kind == "Widget" and owner.controller:
                self.keys.add(owner.name)

    async def reconcile(self, key: str) -> None:
        self.reconciles += 1
        widget = self._widgets.get(key, given.namespace)
        if widget is None:
            return
        try:
            await self._write_child(key, widget)
            await self._write_status(widget)
        except (ResourceConflict, httpx.HTTPStatusError) as error:
            raise RetryLater from error
        if self.reconciles <= 1:
            tell("first", 1)

    async def _write_child(self, key: str, widget: Any) -> None:
        data = {"size": str(widget.spec.size), "note": widget.spec.note}
        there = self._children.get(key, given.namespace)
        if there is not None and there.data == data:
            return
        owner = OwnerReference(
            api_version="bench.opsdk.dev/v1",
            kind="Widget",
            name=key,
            uid=widget.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )
        labels = {"app": "bench-child"}
        metadata = ObjectMeta(name=key, namespace=given.namespace, labels=labels, owner_references=[owner])
        child: Any = ConfigMap(metadata=metadata, data=data)
        await (child.async_create() if there is None else child.async_update())

    async def _write_status(self, widget: Any) -> None:
        status, generation = widget.status or WidgetStatus(), widget.metadata.generation
        ready = next((one for one in status.conditions or () if one.type == "Ready"), None)
        if ready is not None and ready.status == "True" and status.observed_generation == generation:
            return
        condition = Condition(
            type="Ready",
            status="True",
            reason="Reconciled",
            message="",
            observed_generation=generation,
            last_transition_time=ready.last_transition_time if ready else datetime.now(UTC),
        )
        changed = widget.model_copy()
        changed.status = WidgetStatus(observed_generation=generation, conditions=[condition])
        await changed.async_update_status()  # it has no patch


async def main() -> None:
    config: Any = cloudcoil.client.Config(namespace=given.namespace, cache=Cache(sync_timeout=120, resync_period=600))
    with config:
        if given.workload == "sync" and given.count > LARGEST_PAGE:
            await list_and_follow(config)
            return
        kinds = [ConfigMap if given.kind == "configmaps" else Widget]
        if given.workload in {"converge", "idle"}:
            kinds = [ConfigMap, Widget]
        informers: Any = {kind: config.cache.get_informer(kind, namespace=given.namespace) for kind in kinds}
        for informer in informers.values():
            informer._options.page_size = LARGEST_PAGE  # noqa: SLF001 - there is no other way
        if given.workload == "sync":
            await start(config)
            tell("synced", len(informers[kinds[0]].list()))
            await terminated()
            tell("ended")
        elif given.workload == "noop":
            await look_at_all(config, informers[Widget])
        else:
            converging = Converging(informers[Widget], informers[ConfigMap])
            informers[Widget].on_add(lambda widget: converging.widget_changed(None, widget))
            informers[Widget].on_update(converging.widget_changed)
            informers[ConfigMap].on_add(converging.child_changed)
            informers[ConfigMap].on_update(converging.child_changed)
            await start(config)
            for widget in informers[Widget].list():
                converging.keys.add(widget.metadata.name)
            await run(terminated(), *(converging.keys.work(converging.reconcile, RetryLater) for _ in range(WORKERS)))
            tell("ended", converging.reconciles)
        await config.cache.async_stop()


async def start(config: Any) -> None:
    await asyncio.sleep(0)
    await config.cache.async_start()
    await config.cache.async_wait()


async def look_at_all(config: Any, widgets: Any) -> None:
    seen, keys = Seen(given.count, given.label), Keys()

    async def changed(*versions: Any) -> None:
        keys.add(versions[-1].metadata.name)

    async def look(key: str) -> None:
        widget = widgets.get(key, given.namespace)
        if widget is not None:
            seen.look(key, widget.metadata.labels["round"])

    widgets.on_add(changed)
    widgets.on_update(changed)
    await start(config)
    for widget in widgets.list():
        keys.add(widget.metadata.name)
    await run(terminated(), *(keys.work(look, RetryLater) for _ in range(WORKERS)))
    tell("ended", seen.looks)


async def list_and_follow(config: Any) -> None:
    kind = ConfigMap if given.kind == "configmaps" else Widget
    api = config.client_for(kind, sync=False, cached=False)
    objects: dict[str, Any] = {}
    page = await api.list(namespace=given.namespace, limit=500)
    while True:
        objects.update((obj.metadata.name, obj) for obj in page.items)
        token = page.metadata.continue_
        if not token:
            break
        page = await api.list(namespace=given.namespace, limit=500, continue_=token)
    version = page.metadata.resource_version
    tell("synced", len(objects))

    async def follow() -> None:
        async for _, obj in api.watch(namespace=given.namespace, resource_version=version):
            objects[obj.metadata.name] = obj

    await run(follow(), terminated())
    tell("ended")


asyncio.run(main())
