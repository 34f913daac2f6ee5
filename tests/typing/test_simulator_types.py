"""What the simulator's types must allow and must refuse. Never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

from lightkube import AsyncClient
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Service

from opsdk.protocols import Client, KubeObject, Reconciler
from opsdk.testing.plugin import SimulatorFactory
from opsdk.testing.simulator import ExpectationError, Matching, Simulator, matching
from opsdk.types import Request, Result


class Ours:
    def __init__(self, client: Client) -> None: ...

    async def reconcile(self, request: Request) -> Result:
        return Result()


class Both(Ours):
    def __init__(self, client: Client, more: int) -> None: ...


class Theirs:
    def __init__(self, client: AsyncClient) -> None: ...

    async def reconcile(self, request: Request) -> Result:
        return Result()


def replicas(count: int) -> Callable[[Deployment], bool]:
    return lambda deployment: deployment.spec.replicas == count


def named(obj: KubeObject) -> bool:
    return obj.metadata is not None


def of_any(sim: Simulator) -> None:
    assert_type(sim.reconciler, Reconciler)


def of_theirs(sim: Simulator[Theirs]) -> None: ...


async def a_simulator_knows_its_reconciler(start: SimulatorFactory) -> None:
    async with Simulator(Ours) as sim:
        assert_type(sim.reconciler, Ours)
        of_any(sim)
        of_theirs(sim)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    async with Simulator(lambda client: Both(client, 1)) as made:
        assert_type(made.reconciler, Both)
    async with Simulator(Theirs, client_type=AsyncClient) as theirs:
        assert_type(theirs.reconciler, Theirs)
    assert_type((await start(Ours)).reconciler, Ours)
    assert_type((await start(Theirs, client_type=AsyncClient)).reconciler, Theirs)


async def a_simulator_takes_reconcilers_of_either_client() -> None:
    Simulator(Ours)
    Simulator(Theirs, client_type=AsyncClient)
    Simulator(Theirs)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    Simulator(Ours, client_type=AsyncClient)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType, reportCallIssue]


async def expectations_are_typed_by_their_kind(sim: Simulator) -> None:
    assert_type(matching(replicas(1)), Matching[Deployment])
    assert_type(sim.expect_create(Deployment, matching(replicas(1))), Deployment)
    assert_type(sim.expect_delete(Deployment, "w-web"), Deployment)
    assert_type(sim.expect_patch(Deployment, "w-web", matching(replicas(1)), matching(named)), Deployment)
    assert_type(sim.expect_apply(Service, matching(lambda service: service.metadata is not None)), Service)
    sim.expect_create(Service, matching(replicas(1)))  # type: ignore[misc] # pyright: ignore[reportArgumentType]
    sim.expect_create(Service, matching(lambda service: service.replicas))  # type: ignore[attr-defined] # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType, reportAttributeAccessIssue]
    sim.expect_create(Deployment, 7)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def failures_are_assertion_errors(error: ExpectationError) -> AssertionError:
    return error
