"""Fixtures for pytest. pytest finds them by itself where opsdk is installed.

- `api_server`: an in-memory API server that lives as long as the test.
- `simulator`: makes simulators that assert at the end of the test that every write was expected.
- `virtual_anyio_backend`: both backends on virtual time. Return it from your own `anyio_backend` fixture to have it
  everywhere, or ask for it in single modules.
- `control_plane`: a real etcd, kube-apiserver and kube-controller-manager for the session. Override
  `control_plane_crds` to have your kinds there before its controllers start.

The async ones need anyio's own pytest plugin: mark the tests with `pytest.mark.anyio`. What they are made of is
imported when a test asks for it: a run of pytest that does not, pays nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeVar, cast, final, overload

import pytest

if TYPE_CHECKING:
    from lightkube import AsyncClient

    from opsdk.protocols import Client, KubeObject, Reconciler
    from opsdk.testing.apiserver import ApiServer
    from opsdk.testing.controlplane import ControlPlane
    from opsdk.testing.simulator import Simulator
    from opsdk.testing.virtual_time import BackendOptions
    from opsdk.types import JsonObject

__all__ = [
    "SimulatorFactory",
    "api_server",
    "control_plane",
    "control_plane_crds",
    "simulator",
    "virtual_anyio_backend",
]

R = TypeVar("R", bound="Reconciler")
_FAILED = pytest.StashKey[bool]()


@final
class SimulatorFactory:
    """Makes simulators and ends them with the test: `sim = await simulator(WidgetReconciler)`."""

    def __init__(self, exits: AsyncExitStack) -> None:
        self._exits = exits
        self.made: list[Simulator] = []

    @overload
    async def __call__(
        self,
        make_reconciler: Callable[[Client], R],
        *,
        client_type: None = None,
        install: Sequence[type[KubeObject]] = (),
        namespace: str = "default",
    ) -> Simulator[R]: ...
    @overload
    async def __call__(
        self,
        make_reconciler: Callable[[AsyncClient], R],
        *,
        client_type: type[AsyncClient],
        install: Sequence[type[KubeObject]] = (),
        namespace: str = "default",
    ) -> Simulator[R]: ...
    async def __call__(
        self,
        make_reconciler: Callable[[Client], R] | Callable[[AsyncClient], R],
        *,
        client_type: type[AsyncClient] | None = None,
        install: Sequence[type[KubeObject]] = (),
        namespace: str = "default",
    ) -> Simulator[R]:
        """A simulator that has been entered; see `Simulator` for the arguments."""
        from opsdk.testing.simulator import Simulator

        if client_type is None:
            ours = cast("Callable[[Client], R]", make_reconciler)
            made = Simulator(ours, install=install, namespace=namespace)
        else:
            theirs = cast("Callable[[AsyncClient], R]", make_reconciler)
            made = Simulator(theirs, client_type=client_type, install=install, namespace=namespace)
        self.made.append(await self._exits.enter_async_context(made))
        return made


@pytest.fixture
async def api_server() -> AsyncGenerator[ApiServer]:
    """An in-memory API server."""
    from opsdk.testing.apiserver import ApiServer

    async with ApiServer() as server:
        yield server


@pytest.fixture
async def simulator(request: pytest.FixtureRequest) -> AsyncGenerator[SimulatorFactory]:
    """Makes simulators; at the end of a test that has not failed, each asserts that every write was expected."""
    async with AsyncExitStack() as exits:
        factory = SimulatorFactory(exits)
        yield factory
        node = cast("pytest.Item", request.node)
        if node.stash.get(_FAILED, False):
            for made in factory.made:
                made.clear()  # the test's own failure is the one to read


@pytest.fixture(scope="session")
def control_plane_crds() -> Sequence[JsonObject]:
    """CRD manifests that `control_plane` starts with; none unless a project overrides this fixture."""
    return ()


@pytest.fixture(scope="session")
def control_plane(control_plane_crds: Sequence[JsonObject]) -> Generator[ControlPlane]:
    """A real control plane, started by the first test that asks, ended with the session.

    With pytest-xdist each worker has its own. Tests share its objects: give each a namespace of its own.
    """
    from opsdk.testing.controlplane import ControlPlane

    with ControlPlane(crds=control_plane_crds) as started:
        yield started


@pytest.fixture(params=["asyncio", "trio"])
def virtual_anyio_backend(request: pytest.FixtureRequest) -> BackendOptions:
    """Asyncio and trio, on virtual time."""
    from opsdk.testing.virtual_time import virtual_asyncio_options, virtual_trio_options

    return virtual_asyncio_options() if request.param == "asyncio" else virtual_trio_options()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test itself failed, for fixtures that check something at its end."""
    report = yield
    if call.when == "call":
        item.stash[_FAILED] = report.failed
    return report
