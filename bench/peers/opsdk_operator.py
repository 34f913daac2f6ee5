"""The operator of the benchmarks on opsdk, as its users write one."""

from __future__ import annotations

import opsdk  # isort: skip - before lightkube, whose clients are then not loaded; see docs/design/start-up.md

import os

import anyio
from lightkube.resources.core_v1 import ConfigMap
from opsdk_widgets import Converging, Widget
from reporting import Arguments, Seen, arguments, tell

from opsdk.controller import generation_changed

WORKERS = 8


class TellingFirst:
    """Converges, and tells of the first time."""

    def __init__(self, client: opsdk.Client) -> None:
        self.converging = Converging(client)
        self.told = False

    async def reconcile(self, request: opsdk.Request) -> opsdk.Result:
        result = await self.converging.reconcile(request)
        if not self.told:
            self.told = True
            tell("first", 1)
        return result


class Looking:
    """Looks at each Widget and does nothing."""

    def __init__(self, client: opsdk.Client, seen: Seen) -> None:
        self.client = client
        self.seen = seen

    async def reconcile(self, request: opsdk.Request) -> opsdk.Result:
        widget = await self.client.find(Widget, request.name, namespace=request.namespace)
        if widget is not None:
            self.seen.look(request.name, (widget.metadata.labels or {}).get("round", ""))
        return opsdk.Result()


async def tell_when_synced(manager: opsdk.Manager, given: Arguments) -> None:
    kind = ConfigMap if given.kind == "configmaps" else Widget
    informer = manager.informers.informer(kind, given.namespace)
    await informer.wait_synced()
    tell("synced", len(informer.store))


async def main() -> None:
    given = arguments()
    options = opsdk.ManagerOptions(
        leader_election=False,
        namespaces=(given.namespace,),
        metrics_bind_address="127.0.0.1:0",
        probe_bind_address="127.0.0.1:0",
    )
    manager = opsdk.Manager(options)
    seen = Seen(given.count, given.label)
    converging = TellingFirst(manager.client)
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
    tell("ended", seen.looks or converging.converging.reconciles)


anyio.run(main, backend_options={"use_uvloop": os.environ.get("BENCH_UVLOOP") == "1"})
