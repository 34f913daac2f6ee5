"""A process may have one manager after another: what has ended is garbage."""

from __future__ import annotations

import gc
import logging
import weakref

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Secret

from opsdk import Manager, ManagerOptions, Request, Result
from opsdk.errors import LeadershipLostError
from opsdk.testing import ApiServer
from opsdk.types import MergePatch

pytestmark = pytest.mark.anyio

OPTIONS = ManagerOptions(
    leader_election_id="op", leader_election_namespace="default", serve_metrics=False, serve_probes=False
)


@pytest.mark.parametrize("end", ["stop", "lost"])
async def test_q11_of_a_manager_that_has_ended_nothing_stays(end: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "opsdk")  # pytest keeps log records, and they errors with their frames
    async with ApiServer() as server:
        client = server.client()
        for number in range(20):
            await client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace="default")))
        kept = await run_one(server, end)
        gc.collect()
        assert [what for what, reference in kept.items() if reference() is not None] == []


async def run_one(server: ApiServer, end: str) -> dict[str, weakref.ref[object]]:
    manager = Manager(OPTIONS, client=server.client())

    async def reconcile(request: Request) -> Result:
        await manager.client.find(ConfigMap, request.name, namespace=request.namespace)
        return Result()

    controller = manager.controller(ConfigMap).owns(Secret).complete(reconcile)
    parts: dict[str, object] = {
        "manager": manager,
        "controller": controller,
        "queue": controller.queue,
        "informer": manager.informers.informer(ConfigMap),
        "store": manager.informers.informer(ConfigMap).store,
        "metrics": manager.metrics,
    }
    lost = False

    async def start() -> None:
        nonlocal lost
        try:
            await manager.start()
        except LeadershipLostError:
            lost = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await anyio.sleep(30)
        if end == "stop":
            manager.stop()
        else:
            taken = MergePatch({"spec": {"holderIdentity": "somebody-else"}})
            await server.client().patch(Lease, "op", taken, namespace="default")
    assert lost is (end == "lost")
    return {what: weakref.ref(part) for what, part in parts.items()}
