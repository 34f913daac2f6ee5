"""The operator by hand, broken at its calls: its own client, its own watches and its own queue."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest
from lightkube import AsyncClient  # noqa: TID251 - what the operator takes

from life import Life, WrittenStatus
from opsdk import clock
from opsdk.testing.sweeps import World, sweep
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options
from webapp import WebApp
from webapp_vanilla import Operator, Reconciler

pytestmark = pytest.mark.anyio

PATIENCE: Final = timedelta(minutes=5)


@pytest.fixture
def anyio_backend() -> BackendOptions:
    """The operator, and the client that it is built on, are for asyncio."""
    return virtual_asyncio_options()


async def whole_life(world: World) -> None:
    await Life(world.client, WrittenStatus(world.client), tell=lambda _: None, patience=PATIENCE).whole()


def operator(client: AsyncClient) -> Operator:
    return Operator(Reconciler(client, now=clock.now))


async def test_the_operator_by_hand_survives_faults_at_calls_of_a_whole_life() -> None:
    # the model that opsdk's operator has is the same custom resource
    result = await sweep(operator, whole_life, client_type=AsyncClient, install=[WebApp], sample=16)
    assert (len(result.runs), result.missed) == (16, ())
