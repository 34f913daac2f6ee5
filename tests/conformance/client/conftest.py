"""One suite for the client: in memory, over HTTP through both transports, and on a real kube-apiserver.

Each test has a namespace of its own and a client with the transport that the site names.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pytest
import yaml
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace

from conformance.client.widgets import StoredWidget
from conformance.harness import furnished, new_name
from opsdk.client import ApiClient, ClientConfig, HttpxTransport, LeanTransport, Transport
from opsdk.client.crds import install_crds
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options

Place = tuple[str, type[LeanTransport] | type[HttpxTransport] | None, str]

_PLACES: tuple[Place, ...] = (
    ("memory", None, "asyncio"),
    ("memory", None, "trio"),
    ("served", LeanTransport, "trio"),
    ("served", HttpxTransport, "asyncio"),
    ("real", LeanTransport, "asyncio"),
    ("real", HttpxTransport, "trio"),
)
"""Each transport meets each server and each backend, if not all at once."""

_SITES = [
    pytest.param(
        place,
        id="-".join(part if isinstance(part, str) else part.__name__ for part in place if part is not None),
        marks=[pytest.mark.controlplane] if place[0] == "real" else [],
    )
    for place in _PLACES
]


IN_MEMORY = pytest.mark.parametrize(
    "place",
    [site for site, place in zip(_SITES, _PLACES, strict=True) if place[0] != "real"],
    indirect=True,
)
"""For what a test cannot make a real server do: forget its history, tell how many watches are open."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a test runs.

    Args:
        client: The client under test.
        namespace: The test's own.
        memory: The in-memory server, where it is one.
        config: How to reach the server, where it is reached over sockets.
        stack: Closes what a test opens.
    """

    client: ApiClient
    namespace: str
    memory: ApiServer | None
    config: ClientConfig | None
    stack: AsyncExitStack

    async def another(self, *, field_manager: str = "other", dry_run: bool = False) -> ApiClient:
        """Another client, which has read nothing yet."""
        if self.config is None:
            assert self.memory is not None
            transport: Transport = self.memory.transport()
        else:
            transport = LeanTransport(self.config)
            self.stack.push_async_callback(transport.aclose)
        return ApiClient(transport, field_manager=field_manager, dry_run=dry_run)


@pytest.fixture(params=_SITES)
def place(request: pytest.FixtureRequest) -> tuple[str, type[LeanTransport | HttpxTransport] | None, str]:
    chosen: tuple[str, type[LeanTransport | HttpxTransport] | None, str] = request.param
    return chosen


@pytest.fixture
def anyio_backend(
    place: tuple[str, type[LeanTransport | HttpxTransport] | None, str],
) -> BackendOptions | str:
    where, _, backend = place
    if where != "memory":
        return backend
    return virtual_asyncio_options() if backend == "asyncio" else virtual_trio_options()


@pytest.fixture
async def site(
    place: tuple[str, type[LeanTransport | HttpxTransport] | None, str],
    anyio_backend: BackendOptions | str,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[Site]:
    where, make, _ = place
    memory: ApiServer | None = None
    config: ClientConfig | None = None
    async with AsyncExitStack() as stack:
        if where == "real":
            kubeconfig: Path = request.getfixturevalue("real_kubeconfig")
            config = ClientConfig.from_files([kubeconfig])
        else:
            memory = await stack.enter_async_context(ApiServer())
        if where == "served":
            assert memory is not None
            served = await stack.enter_async_context(memory.serve())
            config = ClientConfig.from_dict(yaml.safe_load(served.kubeconfig()))
        if make is None:
            assert memory is not None
            client = memory.client()
        else:
            assert config is not None
            client = await stack.enter_async_context(ApiClient(make(config)))
        await install_crds(client, StoredWidget)
        namespace = new_name("client")
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        if where == "real":  # what a controller puts into each namespace is not to come in the middle of a test
            await furnished(client.raw.transport, namespace)
        yield Site(client=client, namespace=namespace, memory=memory, config=config, stack=stack)
        await client.delete(Namespace, namespace)
