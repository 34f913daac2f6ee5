"""Two servers: the in-memory API server always, a real kube-apiserver with `-m controlplane`.

The real one is what `real_cluster` finds (`make e2e`). Against memory the tests run on virtual time and both backends,
against the real server on real time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from crds.harness import Server
from opsdk.client import ApiClient, ClientConfig
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from real_cluster import real_cluster

_SERVERS = [
    pytest.param("memory-asyncio", id="memory-asyncio"),
    pytest.param("memory-trio", id="memory-trio"),
    pytest.param("real", id="real", marks=pytest.mark.controlplane),
]


@pytest.fixture(params=_SERVERS)
def server_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anyio_backend(server_name: str) -> BackendOptions:
    match server_name:
        case "memory-asyncio":
            return virtual_asyncio_options()
        case "memory-trio":
            return virtual_trio_options()
        case _:
            return "asyncio", {}


@pytest.fixture(scope="session")
def real_kubeconfig() -> Generator[Path]:
    """Not the cluster of the other suites: controllers learn anew of all kinds whenever one comes or goes."""
    with real_cluster(controllers=False) as cluster:
        yield cluster.kubeconfig


@pytest.fixture
async def server(
    server_name: str, anyio_backend: BackendOptions, request: pytest.FixtureRequest
) -> AsyncGenerator[Server]:
    if server_name == "real":
        kubeconfig: Path = request.getfixturevalue("real_kubeconfig")
        async with ApiClient.from_config(ClientConfig.from_files([kubeconfig])) as client:
            yield Server(client=client, real=True)
    else:
        async with ApiServer() as memory:
            yield Server(client=memory.client(), real=False)
