"""The webapp operator with something going wrong at each of its calls, by itself and with its manager."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest

from life import Life, WrittenStatus
from opsdk import Manager, ManagerOptions
from opsdk.client import ApiClient
from opsdk.testing.sweeps import FAULT_KINDS, FaultKind, World, sweep
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from webapp import WebApp, WebAppReconciler, register

pytestmark = pytest.mark.anyio

PATIENCE: Final = timedelta(minutes=5)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> BackendOptions:
    return virtual_asyncio_options() if request.param == "asyncio" else virtual_trio_options()


async def whole_life(world: World) -> None:
    await Life(world.client, WrittenStatus(world.client), tell=lambda _: None, patience=PATIENCE).whole()


def half(backend: BackendOptions) -> list[FaultKind]:
    """Each backend has one half of the faults: together they are all of them."""
    return list(FAULT_KINDS[::2] if backend[0] == "asyncio" else FAULT_KINDS[1::2])


async def test_a_reconciler_survives_a_fault_at_every_call_of_a_whole_life(anyio_backend: BackendOptions) -> None:
    result = await sweep(WebAppReconciler, whole_life, install=[WebApp], faults=half(anyio_backend))
    assert len(result.runs) > 100
    assert not result.missed


async def test_a_manager_survives_faults_at_calls_of_a_whole_life(anyio_backend: BackendOptions) -> None:
    def operator(client: ApiClient) -> Manager:
        options = ManagerOptions(
            leader_election_id="webapps",
            leader_election_namespace="default",
            serve_metrics=False,
            serve_probes=False,
        )
        manager = Manager(options, client=client)
        register(manager)
        return manager

    result = await sweep(operator, whole_life, install=[WebApp], sample=16, seed=len(anyio_backend[0]))
    assert (len(result.runs), result.missed) == (16, ())
