"""What tests with the simulator cost: the webapp example, driven by hand, in CPU of this process.

The other column is the goal itself: 5 ms a reconcile, and 1,000 tests in 30 s on two cores; or, in time, what a test
against a real server needs before anything else: one start of a control plane.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
from cluster import api_server
from figures import Figure, figure
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment

from opsdk import Request, Result
from opsdk.client import ApiClient
from opsdk.protocols import Client
from opsdk.testing import Simulator
from opsdk.testing.virtual_time import virtual_asyncio_options

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "webapp"))

from life import WrittenStatus
from webapp import WebApp, WebAppReconciler, WebAppSpec

__all__ = ["measure"]

_GOAL: Final = "the goal"
_RECONCILE_MS: Final = 5.0
_TESTS: Final = 1_000
_TESTS_SECONDS: Final = 2 * 30.0


class _Counting:
    """Counts the reconciles of a webapp."""

    made = 0

    def __init__(self, client: Client) -> None:
        self._inner = WebAppReconciler(client)

    async def reconcile(self, request: Request) -> Result:
        _Counting.made += 1
        return await self._inner.reconcile(request)


def measure(*, tests: int = 100, rounds: int = 5) -> list[Figure]:
    """What a reconcile and what a test costs.

    Args:
        tests: How many tests make a round.
        rounds: How often each is measured.
    """
    _run(_life)  # imports, codecs and schemas are made once a process
    lives = [_cost(_life, tests) for _ in range(rounds)]
    passes = [_cost(_first_pass, tests) for _ in range(rounds)]
    starts = [_start_of_control_plane() for _ in range(rounds)]
    rests = [_cost(_rest, tests) for _ in range(rounds)]
    return [
        figure(
            "a reconcile of a webapp's life, its test included: CPU",
            "ms",
            [(1000 * seconds / reconciles, _RECONCILE_MS) for seconds, reconciles in lives],
            other=_GOAL,
            goal=1,
        ),
        figure(
            "a reconcile of a webapp at rest: CPU",
            "ms",
            [(1000 * seconds / reconciles, _RECONCILE_MS) for seconds, reconciles in rests],
            other=_GOAL,
            goal=1,
        ),
        figure(
            f"{_TESTS:,} tests of a life with the simulator: CPU",
            "s",
            [(_TESTS * seconds / tests, _TESTS_SECONDS) for seconds, _ in lives],
            other=_GOAL,
            goal=1,
        ),
        *(
            figure(
                f"{_TESTS:,} tests of a {what}",
                "s",
                [(_TESTS * seconds / tests, start) for (seconds, _), start in zip(costs, starts, strict=True)],
                other="one start of a control plane",
                goal=5,
            )
            for what, costs in (("first pass", passes), ("whole life", lives))
        ),
    ]


def _start_of_control_plane() -> float:
    """Seconds from nothing to an API server that answers."""
    began = time.monotonic()
    with api_server():
        return time.monotonic() - began


def _cost(test: Callable[[], Awaitable[None]], count: int) -> tuple[float, int]:
    """CPU seconds and reconciles of so many tests."""
    before, started = _Counting.made, time.process_time()
    for _ in range(count):
        _run(test)
    return time.process_time() - started, _Counting.made - before


def _run(test: Callable[[], Awaitable[None]]) -> None:
    name, options = virtual_asyncio_options()
    anyio.run(test, backend=name, backend_options=options)


async def _life() -> None:
    async with Simulator(_Counting) as sim:
        await _serving(sim)
        await sim.fake_client.delete(WebApp, "shop", namespace="default")
        await sim.settle()
        sim.clear()


async def _first_pass() -> None:
    async with Simulator(_Counting) as sim:
        spec = WebAppSpec(image="shop:1", replicas=2, config={"motd": "hi"})
        await sim.create(WebApp(metadata=ObjectMeta(name="shop"), spec=spec))
        await sim.reconcile()
        deployment = await sim.fake_client.get(Deployment, "shop", namespace="default")
        assert deployment.spec is not None
        assert deployment.spec.replicas == 2
        sim.clear()


async def _rest() -> None:
    async with Simulator(_Counting) as sim:
        await _serving(sim)
        for _ in range(20):
            await sim.reconcile()
        sim.clear()


async def _serving(sim: Simulator) -> None:
    spec = WebAppSpec(image="shop:1", replicas=2, config={"motd": "hi"})
    await sim.create(WebApp(metadata=ObjectMeta(name="shop"), spec=spec))
    client: ApiClient = sim.fake_client
    await WrittenStatus(client).become_available("default", "shop")
    await sim.settle()
