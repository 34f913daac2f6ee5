"""What a cluster without nodes lacks: something that says that pods run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import anyio
from lightkube.models.core_v1 import Container
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Pod

from opsdk import Client
from opsdk.errors import ApiError, ConflictError, NotFoundError
from opsdk.models import name_of
from opsdk.types import Json, MergePatch

__all__ = ["Kubelet"]


@final
class Kubelet:
    """Says of every pod of a namespace that it runs and is ready, or that it is not; a `life.Workload`.

    The rest is the real Deployment and ReplicaSet controllers'.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._images: set[str] = set()
        self._broken = False

    async def become_available(self, namespace: str, name: str) -> None:
        """From now on pods of the Deployment's present image are ready."""
        deployment = await self._client.get(Deployment, name, namespace=namespace)
        self._broken = False
        self._images |= _images(deployment.spec.template.spec.containers if deployment.spec.template.spec else [])

    async def break_down(self, namespace: str, name: str) -> None:
        """From now on no pod is ready."""
        self._broken = True

    def pull(self, image: str) -> None:
        """From now on pods of `image` are ready."""
        self._images.add(image)

    async def run(self) -> None:
        """Look at the pods again and again, whatever the API server says."""
        while True:
            try:
                for pod in await self._client.list(Pod, namespace=self._namespace):
                    await self._tend(pod)
            except ApiError:  # it may be down: that is what some tests are about
                pass
            await anyio.sleep(0.1)

    async def _tend(self, pod: Pod) -> None:
        images = _images(pod.spec.containers if pod.spec is not None else [])
        ready = "True" if images <= self._images and not self._broken else "False"
        conditions = (pod.status.conditions if pod.status is not None else None) or []
        if any(condition.type == "Ready" and condition.status == ready for condition in conditions):
            return
        status: dict[str, Json] = {
            "phase": "Running",
            "conditions": [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")],
        }
        try:
            patch = MergePatch({"status": status})
            await self._client.status.patch(Pod, name_of(pod), patch, namespace=self._namespace)
        except (ConflictError, NotFoundError):  # gone in the meantime
            pass


def _images(containers: Iterable[Container]) -> set[str]:
    return {container.image or "" for container in containers}
