"""One suite, two servers: the in-memory API server always, a real kube-apiserver with `-m controlplane`.

The real one is what `real_cluster` finds (`make e2e`), or the one that OPSDK_TEST_KUBECONFIG names. Against memory the
tests run on virtual time and both backends, against the real server on real time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from functools import partial
from pathlib import Path

import pytest

from conformance.harness import CRDS, Api, eventually, new_name
from opsdk.client import ClientConfig, HttpxTransport
from opsdk.client.transport import Transport
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from real_cluster import real_cluster

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


@pytest.fixture(scope="session")
def real_kubeconfig() -> Generator[Path]:
    if named := os.environ.get("OPSDK_TEST_KUBECONFIG"):
        yield Path(named)
        return
    with real_cluster(CRDS) as cluster:
        yield cluster.kubeconfig


@pytest.fixture
async def api(server: str, anyio_backend: BackendOptions, request: pytest.FixtureRequest) -> AsyncGenerator[Api]:
    if server == "real":
        kubeconfig: Path = request.getfixturevalue("real_kubeconfig")
        transport: Transport = HttpxTransport(ClientConfig.from_files([kubeconfig]))
        try:
            api = await _prepare(transport)
            yield api
            await api.delete("namespaces", api.namespace)
        finally:
            await transport.aclose()
    else:
        async with ApiServer() as memory:
            yield await _prepare(memory.transport())


async def _prepare(transport: Transport) -> Api:
    """The CRDs, where they are not there already, and a namespace of the test's own."""
    namespace = new_name("conformance")
    api = Api(transport, namespace)
    for crd in CRDS:
        await api.create("customresourcedefinitions", crd)
    await api.created("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for crd in CRDS:
        plural = crd["spec"]["names"]["plural"]
        await eventually(partial(_is_served, api, plural))
    return api


async def _is_served(api: Api, plural: str) -> bool:
    """Reading works a moment before writing does."""
    if (await api.get(plural)).status != 200:
        return False
    return (await api.create(plural, {"metadata": {"name": "Not A Name"}})).status != 404
