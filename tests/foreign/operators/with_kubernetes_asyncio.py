"""The small operator, written for kubernetes-asyncio: `python … KUBECONFIG NAMESPACE`, until SIGTERM."""

# The library's annotations leave parts open; what they let through is tried by running it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import Any

import aiohttp
from kubernetes_asyncio import client, config, watch

GROUP, VERSION, PLURAL = "foreign.example.com", "v1", "echoes"
FINALIZER = f"{GROUP}/kubernetes-asyncio"

log = logging.getLogger("operator")


class Operator:
    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.core = client.CoreV1Api(api)
        self.custom = client.CustomObjectsApi(api)
        self.namespace = namespace

    async def put_config_map(self, name: str, data: dict[str, str], owner: dict[str, Any] | None = None) -> None:
        references: list[client.V1OwnerReference] = []
        if owner is not None:
            its_name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
            references = [
                client.V1OwnerReference(
                    api_version=f"{GROUP}/{VERSION}", kind="Echo", name=its_name, uid=uid, controller=True
                )
            ]
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, owner_references=references), data=data)
        try:
            await self.core.create_namespaced_config_map(self.namespace, body)
        except client.ApiException as error:
            if error.status != 409:
                raise
            await self.core.patch_namespaced_config_map(name, self.namespace, {"data": data})

    async def patch(self, name: str, *operations: dict[str, Any]) -> None:
        """By JSON patch, which is what the library calls any patch of a custom object."""
        body = list(operations)
        await self.custom.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name, body)

    async def reconcile(self, echo: dict[str, Any]) -> None:
        metadata, text = echo["metadata"], echo["spec"]["text"]
        name, finalizers = metadata["name"], metadata.get("finalizers", [])
        if "deletionTimestamp" in metadata:
            if FINALIZER in finalizers:
                await self.put_config_map(f"farewell-{name}", {"to": name})
                rest = [each for each in finalizers if each != FINALIZER]
                await self.patch(name, {"op": "replace", "path": "/metadata/finalizers", "value": rest})
            return
        if FINALIZER not in finalizers:
            wanted = [*finalizers, FINALIZER]
            await self.patch(name, {"op": "add", "path": "/metadata/finalizers", "value": wanted})
        await self.put_config_map(name, {"text": text}, echo)
        if echo.get("status", {}).get("observed") != text:
            status = [{"op": "add", "path": "/status", "value": {"observed": text}}]
            await self.custom.patch_namespaced_custom_object_status(
                GROUP, VERSION, self.namespace, PLURAL, name, status
            )

    async def list_and_watch(self) -> None:
        listed = await self.custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)
        for echo in listed["items"]:
            await self.reconcile(echo)
        async with watch.Watch() as watching:
            async for event in watching.stream(
                self.custom.list_namespaced_custom_object,
                GROUP,
                VERSION,
                self.namespace,
                PLURAL,
                resource_version=listed["metadata"]["resourceVersion"],
            ):
                if event["type"] in {"ADDED", "MODIFIED"}:
                    await self.reconcile(event["object"])

    async def run(self) -> None:
        while True:
            try:
                await self.list_and_watch()
            except client.ApiException as error:
                log.info("relist after %s", error.status)
            except (aiohttp.ClientError, TimeoutError) as error:
                log.info("relist after %s", type(error).__name__)
            await asyncio.sleep(0.1)


async def main(kubeconfig: str, namespace: str) -> None:
    await config.load_kube_config(config_file=kubeconfig)
    async with client.ApiClient() as api:
        running = asyncio.create_task(Operator(api, namespace).run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            log.info("ended")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1], sys.argv[2]))
