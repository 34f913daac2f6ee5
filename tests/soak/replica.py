"""One replica of the soak's operator, as a process. Ends on SIGTERM; outlives the loss of its Lease.

Arguments: kubeconfig, the replica's name, the backend, and whether one leads (`leader`) or all divide the objects
(`sharded`).
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

from opsdk import Manager, ManagerOptions, Request, Result
from opsdk.client import ApiClient, ClientConfig
from opsdk.client.finalizers import has_finalizer
from opsdk.errors import LeadershipLostError, RetryError
from opsdk.manager import Sharding
from opsdk.models import owner_reference_to, view_of
from opsdk.types import Preconditions
from soak.gadgets import FINALIZER, LABEL, NAMESPACE, WRITER, Gadget, Part, PartSpec

__all__ = ["LEASE", "LEASE_SECONDS", "WORKERS"]

LEASE: Final = "soak"
LEASE_SECONDS: Final = 4
WORKERS: Final = 8


def _tier(obj: Gadget | Part) -> str:
    return (view_of(obj).labels or {}).get(LABEL, "")


class Keeper:
    """Keeps Parts and statuses like Gadgets, and signs each write: as of which term, and by whom.

    The term is the number of the leadership, as its Lease counts them; where the objects are divided, that of the view
    under which the object became this replica's.
    """

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._client = manager.client
        self._term: int | None = None
        self._writes = 0

    async def reconcile(self, request: Request, /) -> Result:
        gadget = await self._client.find(Gadget, request.name, namespace=request.namespace)
        if gadget is None:
            return Result()
        if self._term is None and self._manager.shards is None:
            self._term = await self._find_term()
        part = await self._client.find(Part, request.name, namespace=request.namespace)
        if gadget.metadata.deletionTimestamp is not None:
            await self._let_go(gadget, part)
            return Result()
        if not has_finalizer(gadget, FINALIZER):
            before = self._client.snapshot(gadget)
            gadget.metadata.finalizers = [*(gadget.metadata.finalizers or ()), FINALIZER]
            gadget.metadata.annotations = {**(view_of(gadget).annotations or {}), WRITER: self._sign()}
            gadget = await self._client.patch_from(before, gadget) or gadget
        await self._keep_part(gadget, part)
        await self._keep_status(gadget)
        return Result()

    async def _find_term(self) -> int:
        """Which leadership this is."""
        lease = await self._manager.api_client.get(Lease, LEASE, namespace=NAMESPACE)
        if lease.spec is None or lease.spec.holderIdentity != self._manager.options.leader_election_identity:
            raise RetryError("somebody else leads", requeue_after=timedelta(seconds=1))
        return lease.spec.leaseTransitions or 0

    def _sign(self) -> str:
        self._writes += 1
        term = self._term
        if self._manager.shards is not None:
            turn = self._manager.shards.current_turn()
            term = None if turn is None else turn.epoch
        return f"{term}/{self._manager.options.leader_election_identity}/{self._writes}"

    async def _let_go(self, gadget: Gadget, part: Part | None) -> None:
        if not has_finalizer(gadget, FINALIZER):
            return
        if part is not None:
            versions = Preconditions(uid=part.metadata.uid, resource_version=part.metadata.resourceVersion)
            await self._client.delete(Part, gadget.metadata.name or "", namespace=NAMESPACE, preconditions=versions)
        before = self._client.snapshot(gadget)
        gadget.metadata.finalizers = [each for each in gadget.metadata.finalizers or () if each != FINALIZER]
        await self._client.patch_from(before, gadget)

    async def _keep_part(self, gadget: Gadget, part: Part | None) -> None:
        tier = _tier(gadget)
        if part is None:
            metadata = ObjectMeta(
                name=gadget.metadata.name,
                namespace=NAMESPACE,
                labels={LABEL: tier},
                annotations={WRITER: self._sign()},
                ownerReferences=[owner_reference_to(gadget)],
            )
            await self._client.create(Part(metadata=metadata, spec=PartSpec(value=gadget.spec.value)))
        elif (part.spec.value, _tier(part)) != (gadget.spec.value, tier):
            before = self._client.snapshot(part)
            part.spec.value = gadget.spec.value
            part.metadata.labels = {LABEL: tier}
            part.metadata.annotations = {WRITER: self._sign()}
            await self._client.patch_from(before, part)

    async def _keep_status(self, gadget: Gadget) -> None:
        tier = _tier(gadget)
        status = gadget.status
        generation = gadget.metadata.generation or 0
        if (status.value, status.tier, status.observed_generation) == (gadget.spec.value, tier, generation):
            return
        before = self._client.snapshot(gadget)
        status.value, status.tier, status.observed_generation = gadget.spec.value, tier, generation
        status.writer = self._sign()
        await self._client.status.patch_from(before, gadget)


async def operate(kubeconfig: Path, replica: str, mode: str) -> None:
    """One manager after another: one that has lost its leadership, or its membership, is not used again."""
    terms = 0
    while True:
        terms += 1
        options = ManagerOptions(
            leader_election=mode == "leader",
            sharding=Sharding(hand_over_grace=timedelta(seconds=2)) if mode == "sharded" else None,
            leader_election_id=LEASE,
            leader_election_namespace=NAMESPACE,
            leader_election_identity=f"{replica}-{os.getpid()}-{terms}",
            lease_duration=timedelta(seconds=LEASE_SECONDS),
            renew_deadline=timedelta(seconds=2.5),
            retry_period=timedelta(seconds=0.5),
            metrics_bind_address="127.0.0.1:0",
            probe_bind_address="127.0.0.1:0",
            grace_period=timedelta(seconds=5),
            log_level="WARNING",
            log_format="text",
        )
        async with ApiClient.from_config(ClientConfig.from_files([kubeconfig])) as client:
            manager = Manager(options, client=client)
            keeper = Keeper(manager)
            manager.controller(Gadget).owns(Part).options(max_concurrent=WORKERS).complete(keeper.reconcile)
            try:
                await manager.run()
            except LeadershipLostError as error:
                logging.getLogger("soak").warning("%s: %s", replica, error)
            else:
                return
        del manager, keeper
        gc.collect()  # a manager is full of cycles; what is measured is what stays, not when the collector comes


if __name__ == "__main__":
    anyio.run(operate, Path(sys.argv[1]), sys.argv[2], sys.argv[4], backend=sys.argv[3])
