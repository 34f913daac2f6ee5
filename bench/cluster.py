"""A real kube-apiserver for benchmarks, and objects in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace

from opsdk.client import ApiClient, ClientConfig
from opsdk.errors import AlreadyExistsError
from opsdk.testing.controlplane import ControlPlane, find_assets
from opsdk.types import Json

__all__ = ["NAMESPACE", "api_server", "fill"]

NAMESPACE: Final = "bench"
_AT_ONCE: Final = 32


@contextmanager
def api_server() -> Generator[Path]:
    """Start etcd and kube-apiserver, without controllers; gives the kubeconfig."""
    built = os.environ.get("OPSDK_CONTROLPLANE_ASSETS") or _built_here()
    assets = find_assets(Path(built))
    with ControlPlane(assets=assets, controllers=False) as plane:
        yield plane.kubeconfig


def _built_here() -> str:
    """Where `make controlplane` puts it."""
    build = Path(__file__).parents[1] / "tests" / "controlplane" / "build.sh"
    done = subprocess.run([str(build), "--where"], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
    return done.stdout.strip()


async def fill(kubeconfig: Path, *, config_maps: int = 0, deployments: int = 0) -> None:
    """Create so many objects in the namespace of the benchmarks."""
    async with ApiClient.from_config(ClientConfig.from_files([kubeconfig])) as client:
        with suppress(AlreadyExistsError):
            await client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        for number in range(config_maps):
            name = ObjectMeta(name=f"small-{number:02}", namespace=NAMESPACE)
            await client.create(ConfigMap(metadata=name, data={"a": "1", "b": "2"}))
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
        waiting = list(range(deployments))

        async def create() -> None:
            while waiting:
                body = json.dumps(deployment(waiting.pop())).encode()
                await client.raw.request("POST", path, body=body)

        async with anyio.create_task_group() as tasks:
            for _ in range(_AT_ONCE):
                tasks.start_soon(create)


def deployment(number: int) -> Json:
    """A Deployment as people write them: 3.2 KB as stored, managedFields included."""
    name = f"web-{number:05}"
    labels: Json = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "team": f"t{number % 17}"}
    probe: Json = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 2}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"example.com/revision": str(number), "example.com/contact": "team@example.com"},
        },
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": name,
                    "containers": [
                        {
                            "name": "app",
                            "image": f"registry.example.com/shop/{name}:1.{number % 40}.0",
                            "args": ["--listen=:8080", "--verbose"],
                            "ports": [{"name": "http", "containerPort": 8080}],
                            "env": [
                                {"name": "DATABASE_URL", "value": f"postgres://db/{name}"},
                                {
                                    "name": "PASSWORD",
                                    "valueFrom": {"secretKeyRef": {"name": name, "key": "password"}},
                                },
                            ],
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "128Mi"},
                                "limits": {"memory": "256Mi"},
                            },
                            "readinessProbe": probe,
                            "livenessProbe": probe,
                            "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
                        }
                    ],
                    "volumes": [{"name": "config", "configMap": {"name": name}}],
                },
            },
        },
    }
