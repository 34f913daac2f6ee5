"""A control plane of a file's own, to be disturbed, and what it takes to look at the runtime meanwhile."""

from __future__ import annotations

import json
import os
import ssl
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Generic

import anyio
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace
from typing_extensions import TypeVar

from opsdk import CustomResource, Manager, ManagerOptions, Model
from opsdk.cache import Change, Informer, ReflectorOptions
from opsdk.client import ApiClient, ClientConfig
from opsdk.models import crd_manifest
from opsdk.protocols import KubeObject
from opsdk.testing.controlplane import ControlPlane, find_assets
from opsdk.types import JsonObject

__all__ = [
    "GROUP",
    "PATIENCE_SECONDS",
    "Follower",
    "Gadget",
    "GadgetSpec",
    "client_of",
    "config_of",
    "control_plane",
    "eventually",
    "following",
    "manager_options",
    "new_namespace",
    "server_port",
    "starting",
    "trusting",
]

T = TypeVar("T", bound=KubeObject)

GROUP: Final = "runtime.example.com"
PATIENCE_SECONDS: Final = 120.0


class GadgetSpec(Model):
    """Some content."""

    value: int = 0
    padding: str = ""


class Gadget(CustomResource[GadgetSpec, GadgetSpec], group=GROUP, version="v1"):
    """Stored as JSON, so that many can be put into etcd at once."""


@contextmanager
def control_plane(*kinds: type[KubeObject], controllers: bool = False) -> Generator[ControlPlane]:
    """One that may be disturbed: never the one that KUBECONFIG names."""
    built = os.environ.get("OPSDK_CONTROLPLANE_ASSETS")
    assets = find_assets(Path(built) if built else None)
    with ControlPlane(assets=assets, crds=[crd_manifest(kind) for kind in kinds], controllers=controllers) as plane:
        yield plane


def server_port(plane: ControlPlane) -> int:
    return int(plane.url.rpartition(":")[2])


def trusting(plane: ControlPlane) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))


def config_of(
    plane: ControlPlane, *, context: str = "token-admin", url: str | None = None, user: JsonObject | None = None
) -> ClientConfig:
    """How to reach it: at another address, as another user."""
    document: dict[str, Any] = json.loads(plane.kubeconfig.read_text())
    if url is not None:
        document["clusters"][0]["cluster"]["server"] = url
    if user is not None:
        next(entry for entry in document["users"] if entry["name"] == context)["user"] = user
    return ClientConfig.from_dict(document, context=context)


def client_of(plane: ControlPlane, *, port: int | None = None, plain: bool = False, **how: Any) -> ApiClient:
    """A client, by way of a proxy if a port is given: one that takes plain HTTP, or TLS."""
    url = None if port is None else f"{'http' if plain else 'https'}://127.0.0.1:{port}"
    return ApiClient.from_config(config_of(plane, url=url, **how))


async def new_namespace(client: ApiClient) -> str:
    name = f"runtime-{uuid.uuid4().hex[:8]}"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    return name


def manager_options(
    namespace: str, lease: str = "", *, short: bool = False, namespaces: Sequence[str] | None = None
) -> ManagerOptions:
    """On loopback, and with a Lease if that has a name.

    Args:
        namespace: Of the Lease, and to work in.
        lease: Its name; empty: without one.
        short: It runs out after 3 s, for tests of that: a machine that stands still for 2 s loses it.
        namespaces: Others to work in.
    """
    return ManagerOptions(
        leader_election=bool(lease),
        leader_election_id=lease,
        leader_election_namespace=namespace,
        lease_duration=timedelta(seconds=3 if short else 30),
        renew_deadline=timedelta(seconds=2 if short else 25),
        retry_period=timedelta(seconds=0.4),
        metrics_bind_address="127.0.0.1:0",
        probe_bind_address="127.0.0.1:0",
        namespaces=(namespace,) if namespaces is None else tuple(namespaces),
        log_format=None,
    )


@asynccontextmanager
async def starting(manager: Manager) -> AsyncGenerator[None]:
    """It runs meanwhile, and ends in order."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manager.start)
        yield
        manager.stop()


async def eventually(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something holds."""
    with anyio.move_on_after(seconds):
        while not holds():  # noqa: ASYNC110 - what is waited for knows of no event
            await anyio.sleep(0.05)
        return
    raise AssertionError(f"not within {seconds:g} s: {what}")


class Follower(Generic[T]):
    """An informer, and what it told."""

    def __init__(self, informer: Informer[T]) -> None:
        self.informer = informer
        self.changes: list[Change[T]] = []
        informer.add_handler(self.changes.append)

    @property
    def names(self) -> set[str]:
        return {cached.header.name for cached in self.informer.store.select()}

    async def sees(self, *names: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until these objects are there, and no others."""
        await eventually(lambda: self.names == set(names), f"{sorted(names)}, but {sorted(self.names)}", seconds)


@asynccontextmanager
async def following(
    client: ApiClient,
    kind: type[T],
    namespace: str | None,
    *,
    options: ReflectorOptions | None = None,
    wait: bool = True,
) -> AsyncGenerator[Follower[T]]:
    """An informer that runs."""
    follower = Follower(Informer(client, kind, namespace=namespace, options=options))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follower.informer.run)
        if wait:
            with anyio.fail_after(PATIENCE_SECONDS):
                await follower.informer.wait_synced()
        yield follower
        tasks.cancel_scope.cancel()
