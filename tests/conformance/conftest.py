"""One suite, two servers: the in-memory API server always, a real kube-apiserver with `-m controlplane`.

The real one is that of `tests/conftest.py` (`make e2e`). Against memory the tests run on virtual time and both
backends, against the real server on real time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from functools import partial
from pathlib import Path

import pytest

from conformance.differences import taken
from conformance.harness import Api, prepare
from etcd_gateway import Etcd
from opsdk.client import ClientConfig, HttpxTransport
from opsdk.client.transport import Transport
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from real_cluster import RealCluster

_SERVERS = [
    pytest.param("memory-asyncio", id="memory-asyncio"),
    pytest.param("memory-trio", id="memory-trio"),
    pytest.param("real", id="real", marks=pytest.mark.controlplane),
]


@pytest.fixture(params=_SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anyio_backend(server: str) -> BackendOptions:
    match server:
        case "memory-asyncio":
            return virtual_asyncio_options()
        case "memory-trio":
            return virtual_trio_options()
        case _:
            return "asyncio", {}


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that passes has asserted the differences that it declares, and no others."""
    taken.clear()
    result = yield
    declared = {difference.name for mark in pyfuncitem.iter_markers("differs") for difference in mark.args}
    found = {difference.name for difference in taken}
    assert found == declared, f"declared to differ in {sorted(declared)}, asserted to differ in {sorted(found)}"
    return result


@pytest.fixture
async def api(server: str, anyio_backend: BackendOptions, request: pytest.FixtureRequest) -> AsyncGenerator[Api]:
    if server == "real":
        kubeconfig: Path = request.getfixturevalue("real_kubeconfig")
        cluster: RealCluster = request.getfixturevalue("cluster")
        transport: Transport = HttpxTransport(ClientConfig.from_files([kubeconfig]))
        try:
            api = await prepare(transport, "real", partial(_forget, cluster))
            yield api
            await api.delete("namespaces", api.namespace)
        finally:
            await transport.aclose()
    else:
        async with ApiServer() as memory:
            yield await prepare(memory.transport(), "memory", memory.compact)


def _forget(cluster: RealCluster) -> None:
    if cluster.control_plane is None:
        pytest.skip("the history of a cluster that is not ours is left alone")
    Etcd(cluster.control_plane.folder).compact()
