"""The small operator, written for kopf: `python with_kopf.py KUBECONFIG NAMESPACE`, until SIGTERM."""

# The library's annotations leave parts open; what they let through is tried by running it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

import kopf
from kubernetes_asyncio import client, config

GROUP = "foreign.example.com"


@kopf.on.login()
def log_in(settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(settings=settings)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = True
    settings.watching.reconnect_backoff = 0.2
    settings.persistence.finalizer = f"{GROUP}/kopf"


async def put_config_map(name: str, namespace: str, data: Mapping[str, str], owner: kopf.Body | None) -> None:
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=dict(data))
    if owner is not None:
        kopf.append_owner_reference(body, owner)
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)
        try:
            await core.create_namespaced_config_map(namespace, body)
        except client.ApiException as error:
            if error.status != 409:
                raise
            await core.patch_namespaced_config_map(name, namespace, {"data": dict(data)})


@kopf.on.create(GROUP, "v1", "echoes")
@kopf.on.update(GROUP, "v1", "echoes")
@kopf.on.resume(GROUP, "v1", "echoes")
async def echo(
    spec: kopf.Spec, name: str | None, namespace: str | None, body: kopf.Body, patch: kopf.Patch, **_: Any
) -> None:
    assert name is not None
    assert namespace is not None
    text = str(spec["text"])
    await put_config_map(name, namespace, {"text": text}, body)
    patch.status["observed"] = text


@kopf.on.delete(GROUP, "v1", "echoes")
async def farewell(name: str | None, namespace: str | None, **_: Any) -> None:
    assert name is not None
    assert namespace is not None
    await put_config_map(f"farewell-{name}", namespace, {"to": name}, None)


async def main(kubeconfig: str, namespace: str) -> None:
    os.environ["KUBECONFIG"] = kubeconfig
    await config.load_kube_config(config_file=kubeconfig)
    await kopf.operator(namespaces=[namespace], standalone=True)  # ends by itself on SIGTERM


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
