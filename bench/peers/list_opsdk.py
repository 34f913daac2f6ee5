"""List Deployments with opsdk: `python list_opsdk.py KUBECONFIG NAMESPACE`."""

from __future__ import annotations

import sys

import anyio
from lightkube.resources.apps_v1 import Deployment
from meter import Meter

from opsdk.client import ApiClient, ClientConfig


async def main(kubeconfig: str, namespace: str) -> None:
    """One list, after a first request that opens the connection."""
    async with ApiClient.from_config(ClientConfig.from_files([kubeconfig])) as client:
        await client.find(Deployment, "none", namespace=namespace)
        meter = Meter()
        found = await client.list(Deployment, namespace=namespace)
        meter.report(len(found))


anyio.run(main, sys.argv[1], sys.argv[2])
