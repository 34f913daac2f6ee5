"""List Deployments with lightkube: `python list_lightkube.py KUBECONFIG NAMESPACE`."""

from __future__ import annotations

import sys
from contextlib import suppress

import anyio
import lightkube
from lightkube.config.kubeconfig import KubeConfig
from lightkube.resources.apps_v1 import Deployment
from meter import Meter


async def main(kubeconfig: str, namespace: str) -> None:
    """One list, after a first request that opens the connection."""
    client = lightkube.AsyncClient(config=KubeConfig.from_file(kubeconfig).get(), namespace=namespace)
    with suppress(lightkube.ApiError):
        await client.get(Deployment, "none")
    meter = Meter()
    found = [one async for one in client.list(Deployment)]
    meter.report(len(found))
    await client.close()


anyio.run(main, sys.argv[1], sys.argv[2])
