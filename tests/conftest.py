"""What all tests share: both backends on virtual time, and a real control plane for those marked `controlplane`.

Every async test runs on both backends; folders that need sockets choose real time themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest

from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from opsdk.types import JsonObject
from real_cluster import RealCluster, real_cluster

_BACKENDS = {"asyncio": virtual_asyncio_options, "trio": virtual_trio_options}


# how long a machine takes says nothing about the code: no example is too slow
hypothesis.settings.register_profile("opsdk", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("opsdk")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "differs(*differences): the two API servers answer differently, as declared")


@pytest.fixture(params=sorted(_BACKENDS))
def anyio_backend(request: pytest.FixtureRequest) -> BackendOptions:
    name = str(request.param)
    return _BACKENDS[name]()


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """One real cluster for all tests of this process, with the kinds of all suites from the start.

    The real garbage collector learns of later kinds up to half a minute later. Tests keep to a namespace, and to names
    of cluster-scoped objects, that nobody else has; one that harms its servers makes a cluster of its own.
    """
    with real_cluster(_crds()) as found:
        yield found


@pytest.fixture(scope="session")
def real_kubeconfig(cluster: RealCluster) -> Path:
    return cluster.kubeconfig


def _crds() -> Sequence[JsonObject]:
    """The kinds of the suites that share the cluster; imported here, since most runs need none of them."""
    from conformance.client.widgets import StoredWidget
    from conformance.harness import CRDS
    from conformance.ownership.children import OWN_CRDS
    from foreign.conftest import CRD as FOREIGN_CRD
    from opsdk.models import crd_manifest
    from roles import Role, Scope
    from webapp import WebApp

    return [*CRDS, *OWN_CRDS, FOREIGN_CRD, *(crd_manifest(kind) for kind in (StoredWidget, WebApp, Role, Scope))]
