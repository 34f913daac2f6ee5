"""One of several replicas that divide ConfigMaps, as a program: to be stopped and resumed.

Each pass takes a moment and then writes, without a precondition and deaf to cancellation, who did it: the member's
Lease and the number of the view. Said on stdout are what a pass is to write, what the gate refuses, and the view.

Arguments: kubeconfig, namespace, name of the replica.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import anyio
from lightkube.resources.core_v1 import ConfigMap

from opsdk import Manager, ManagerOptions
from opsdk.client import ApiClient, ClientConfig
from opsdk.errors import LeadershipLostError
from opsdk.manager import Sharding
from opsdk.types import MergePatch, Request, Result

WORK_SECONDS = 0.2


class _WithData(Protocol):
    @property
    def data(self) -> Mapping[str, str] | None: ...


def _data_of(obj: _WithData) -> dict[str, str]:
    return dict(obj.data or {})


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what the test reads


async def operate(kubeconfig: str, namespace: str, name: str) -> None:
    options = ManagerOptions(
        leader_election=False,
        leader_election_id="shards-e2e",
        leader_election_namespace=namespace,
        leader_election_identity=name,
        lease_duration=timedelta(seconds=3),
        renew_deadline=timedelta(seconds=2),
        retry_period=timedelta(seconds=0.5),
        sharding=Sharding(hand_over_grace=timedelta(seconds=2)),
        serve_metrics=False,
        serve_probes=False,
        field_manager=name,
        namespaces=(namespace,),
    )
    config = ClientConfig.from_files([Path(kubeconfig)])
    async with ApiClient.from_config(config, field_manager=name) as client:
        manager = Manager(options, client=client)
        shards = manager.shards
        assert shards is not None

        async def reconcile(request: Request) -> Result:
            turn = shards.current_turn()
            assert turn is not None
            lease, epoch = shards.lease, turn.epoch
            data = _data_of(await manager.client.get(ConfigMap, request.name, namespace=request.namespace))
            done = {"seen": data.get("want", ""), "by": name, "lease": lease, "epoch": str(epoch)}
            if all(data.get(key) == value for key, value in done.items()):
                return Result()
            say(f"begun {lease} {request.name}={done['seen']}")
            with anyio.CancelScope(shield=True):
                await anyio.sleep(WORK_SECONDS)
                try:
                    patch = MergePatch({"data": done})
                    await manager.client.patch(ConfigMap, request.name, patch, namespace=request.namespace)
                except LeadershipLostError:
                    say(f"refused {lease} {request.name}")
                    raise
            return Result()

        def changed(_: Callable[[str], bool]) -> None:
            if shards.settled:
                say(f"settled {shards.lease} {shards.members}")

        manager.controller(ConfigMap).options(max_concurrent=20).complete(reconcile)
        shards.subscribe(changed)
        await manager.run()


if __name__ == "__main__":
    _, kubeconfig, namespace, name = sys.argv
    anyio.run(operate, kubeconfig, namespace, name)
