"""The operator of the benchmarks on kopf; it has no client for children, so lightkube's makes them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import kopf
from by_hand import WORKERS, status_of
from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap
from reporting import Seen, arguments, tell

WIDGETS = ("bench.opsdk.dev", "v1", "widgets")

given = arguments()
logging.basicConfig(level=logging.WARNING)
seen = Seen(given.count, given.label)
reconciles = 0

if given.workload == "sync":
    # kopf has no cache to fill: what is measured is that each object reached a handler that keeps it
    kept: dict[str, dict[str, Any]] = {}
    where = WIDGETS if given.kind == "widgets" else ("", "v1", "configmaps")

    @kopf.on.event(*where)
    async def keep(name: str, body: Any, **_: Any) -> None:
        kept[name] = dict(body)
        if len(kept) == given.count:
            tell("synced", len(kept))

elif given.workload == "noop":

    @kopf.on.event(*WIDGETS)
    async def look(name: str, labels: Any, **_: Any) -> None:
        seen.look(name, labels["round"])

else:
    at_once = asyncio.Semaphore(WORKERS)
    clients: list[AsyncClient] = []

    @kopf.on.resume(*WIDGETS)
    @kopf.on.create(*WIDGETS)
    @kopf.on.update(*WIDGETS, field="spec")
    async def reconcile(name: str, uid: str, spec: Any, meta: Any, status: Any, patch: Any, **_: Any) -> None:
        global reconciles  # noqa: PLW0603 - a program of one file
        reconciles += 1
        if not clients:
            clients.append(AsyncClient(field_manager="bench-kopf"))
        (client,) = clients
        owner = OwnerReference(
            apiVersion="bench.opsdk.dev/v1", kind="Widget", name=name, uid=uid, controller=True, blockOwnerDeletion=True
        )
        labels = {"app": "bench-child"}
        metadata = ObjectMeta(name=name, namespace=given.namespace, labels=labels, ownerReferences=[owner])
        child = ConfigMap(metadata=metadata, data={"size": str(spec["size"]), "note": spec.get("note", "")})
        # without a cache of children: create what was never seen, else replace
        async with at_once:
            new = not status.get("observedGeneration")
            if new:
                try:
                    await client.create(child)
                except ApiError as error:
                    if error.status.code != 409:
                        raise
                    new = False
            if not new:
                await client.replace(child)
        ready = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), None)
        patch.status.update(status_of(meta["generation"], ready and ready["lastTransitionTime"]))

    if given.workload == "idle":

        @kopf.on.event(*WIDGETS)
        async def written(status: Any, **_: Any) -> None:
            if status.get("observedGeneration"):
                tell("first", 1)


kopf.run(standalone=True, namespaces=[given.namespace])
tell("ended", seen.looks or reconciles)
