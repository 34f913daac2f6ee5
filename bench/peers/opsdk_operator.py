"""The operator of the benchmarks on opsdk, as its users write one."""

from __future__ import annotations

import anyio
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from pydantic import Field
from reporting import Arguments, Seen, arguments, tell

from opsdk import Client, CustomResource, For, Manager, ManagerOptions, Model, Request, ResourceOwner, Result
from opsdk.controller import generation_changed
from opsdk.models import Conditions, set_condition

WORKERS = 8


class WidgetSpec(Model):
    size: int
    note: str = ""


class WidgetStatus(Model):
    observed_generation: int | None = None
    conditions: Conditions = Field(default_factory=list)


class Widget(CustomResource[WidgetSpec, WidgetStatus], group="bench.opsdk.dev", version="v1"):
    """What the benchmarks are about."""


def data_of(widget: Widget) -> dict[str, str]:
    return {"size": str(widget.spec.size), "note": widget.spec.note}


def build(widget: Widget) -> list[ConfigMap]:
    metadata = ObjectMeta(name=widget.metadata.name, labels={"app": "bench-child"})
    return [ConfigMap(metadata=metadata, data=data_of(widget))]


def update(widget: Widget, existing: ConfigMap) -> ConfigMap:
    existing.data = data_of(widget)
    return existing


class Converging:
    """Gives each Widget a ConfigMap and a status."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.children = ResourceOwner(Widget, client, [For(ConfigMap, build, update=update)])
        self.reconciles = 0

    async def reconcile(self, request: Request) -> Result:
        self.reconciles += 1
        widget = await self.client.find(Widget, request.name, namespace=request.namespace)
        if widget is None:
            return Result()
        before = self.client.snapshot(widget)
        result = await self.children.reconcile(widget)
        generation = widget.metadata.generation
        set_condition(
            widget.status.conditions, type="Ready", status="True", reason="Reconciled", observed_generation=generation
        )
        widget.status.observed_generation = generation
        await self.client.status.patch_from(before, widget)
        if self.reconciles <= 1:
            tell("first", 1)
        return result


class Looking:
    """Looks at each Widget and does nothing."""

    def __init__(self, client: Client, seen: Seen) -> None:
        self.client = client
        self.seen = seen

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.find(Widget, request.name, namespace=request.namespace)
        if widget is not None:
            self.seen.look(request.name, (widget.metadata.labels or {}).get("round", ""))
        return Result()


async def tell_when_synced(manager: Manager, given: Arguments) -> None:
    kind = ConfigMap if given.kind == "configmaps" else Widget
    informer = manager.informers.informer(kind, given.namespace)
    await informer.wait_synced()
    tell("synced", len(informer.store))


async def main() -> None:
    given = arguments()
    options = ManagerOptions(
        leader_election=False,
        namespaces=(given.namespace,),
        metrics_bind_address="127.0.0.1:0",
        probe_bind_address="127.0.0.1:0",
    )
    manager = Manager(options)
    seen = Seen(given.count, given.label)
    converging = Converging(manager.client)
    if given.workload == "noop":
        manager.controller(Widget).options(max_concurrent=WORKERS).complete(Looking(manager.client, seen))
    elif given.workload in {"converge", "idle"}:
        controller = manager.controller(Widget).predicates(generation_changed()).owns(ConfigMap)
        controller.options(max_concurrent=WORKERS).complete(converging)
    async with anyio.create_task_group() as tasks:
        if given.workload == "sync":
            tasks.start_soon(tell_when_synced, manager, given)
        await manager.run()
        tasks.cancel_scope.cancel()
    tell("ended", seen.looks or converging.reconciles)


anyio.run(main)
