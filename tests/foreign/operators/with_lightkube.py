"""The small operator, written for lightkube's own client: `python … KUBECONFIG NAMESPACE`, until SIGTERM."""

# The library's annotations leave parts open; what they let through is tried by running it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import Any

import httpx2
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

GROUP = "foreign.example.com"
FINALIZER = f"{GROUP}/lightkube"
Echo = create_namespaced_resource(GROUP, "v1", "Echo", "echoes")

log = logging.getLogger("operator")


class Operator:
    def __init__(self, client: AsyncClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def put_config_map(self, name: str, data: dict[str, str], owner: ObjectMeta | None = None) -> None:
        references = None
        if owner is not None:
            assert owner.name is not None
            assert owner.uid is not None
            reference = OwnerReference(
                apiVersion=f"{GROUP}/v1", kind="Echo", name=owner.name, uid=owner.uid, controller=True
            )
            references = [reference]
        metadata = ObjectMeta(name=name, namespace=self.namespace, ownerReferences=references)
        await self.client.apply(ConfigMap(metadata=metadata, data=data), field_manager="echo", force=True)

    async def reconcile(self, echo: Any) -> None:
        metadata: ObjectMeta = echo.metadata
        assert metadata.name is not None
        name, finalizers, text = metadata.name, metadata.finalizers or [], str(echo.spec["text"])
        if metadata.deletionTimestamp is not None:
            if FINALIZER in finalizers:
                await self.put_config_map(f"farewell-{name}", {"to": name})
                rest = [each for each in finalizers if each != FINALIZER]
                await self.patch(Echo, name, {"metadata": {"finalizers": rest}})
            return
        if FINALIZER not in finalizers:
            await self.patch(Echo, name, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
        await self.put_config_map(name, {"text": text}, metadata)
        if (echo.status or {}).get("observed") != text:
            await self.patch(Echo.Status, name, {"status": {"observed": text}})

    async def patch(self, resource: type[Any], name: str, body: dict[str, Any]) -> None:
        await self.client.patch(resource, name, body, namespace=self.namespace, patch_type=PatchType.MERGE)

    async def list_and_watch(self) -> None:
        """A watch without a version begins with what is there; lightkube's own way to go on would skip a list."""
        async for event, echo in self.client.watch(Echo, namespace=self.namespace, server_timeout=60):
            if event in {"ADDED", "MODIFIED"}:
                await self.reconcile(echo)

    async def run(self) -> None:
        while True:
            try:
                await self.list_and_watch()
            except ApiError as error:
                log.info("watch again after %s", error.status.code)
            except httpx2.HTTPError as error:
                log.info("watch again after %s", type(error).__name__)
            await asyncio.sleep(0.1)


async def main(kubeconfig: str, namespace: str) -> None:
    client = AsyncClient(config=KubeConfig.from_file(kubeconfig), namespace=namespace)
    running = asyncio.create_task(Operator(client, namespace).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        log.info("ended")
    finally:
        await client.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1], sys.argv[2]))
