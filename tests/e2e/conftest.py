"""One real control plane for all tests here, with the examples' CRDs installed before its controllers start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opsdk.models import crd_manifest
from real_cluster import RealCluster, real_cluster
from roles import Role, Scope
from webapp import WebApp


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: there are sockets and other people's processes."""
    return str(request.param)


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    with real_cluster(crds=[crd_manifest(WebApp), crd_manifest(Role), crd_manifest(Scope)]) as cluster:
        yield cluster
