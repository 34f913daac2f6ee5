"""Virtual time, on both backends, and what it does when real threads are at work."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from opsdk import clock
from opsdk.testing.virtual_time import VirtualClock, virtual_asyncio_options

pytestmark = pytest.mark.anyio


async def test_sleeping_a_day_takes_no_time() -> None:
    began, virtual = time.monotonic(), anyio.current_time()
    await anyio.sleep(86_400 * 3)
    assert anyio.current_time() - virtual == pytest.approx(86_400 * 3)
    assert time.monotonic() - began < 60


async def test_timers_fire_in_order() -> None:
    seen: list[float] = []

    async def sleeper(seconds: float) -> None:
        await anyio.sleep(seconds)
        seen.append(seconds)

    async with anyio.create_task_group() as tasks:
        for seconds in (3600, 1, 60, 0.001):
            tasks.start_soon(sleeper, seconds)
    assert seen == [0.001, 1, 60, 3600]


async def test_a_timeout_fires_at_its_virtual_time() -> None:
    began = anyio.current_time()
    with anyio.move_on_after(30) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() - began == pytest.approx(30)


async def test_tiny_steps_on_a_large_clock_still_move_it() -> None:
    await anyio.sleep(1e9)  # noqa: ASYNC116 - it does end
    for _ in range(10):
        await anyio.sleep(1e-9)


async def test_time_stands_still_while_a_worker_thread_works() -> None:
    with anyio.move_on_after(3600) as scope:
        await anyio.to_thread.run_sync(time.sleep, 0.05)
    assert not scope.cancelled_caught


async def test_time_jumps_again_once_the_worker_thread_is_done() -> None:
    await anyio.to_thread.run_sync(time.sleep, 0)
    began = anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() - began == pytest.approx(3600)


async def test_a_thread_of_the_users_own_wakes_the_loop_through_a_worker_that_joins_it() -> None:
    event = anyio.Event()

    def work(portal: anyio.from_thread.BlockingPortal) -> None:
        time.sleep(0.05)
        portal.call(event.set)

    async with anyio.from_thread.BlockingPortal() as portal:
        thread = threading.Thread(target=work, args=(portal,))
        thread.start()
        with anyio.move_on_after(3600) as scope:
            await anyio.to_thread.run_sync(thread.join)
            await event.wait()
        assert not scope.cancelled_caught


async def test_the_virtual_clock_follows_the_loop() -> None:
    start = datetime(2030, 5, 1, tzinfo=UTC)
    with clock.using(VirtualClock(start)):
        assert clock.now() == start
        await anyio.sleep(90)
        assert clock.now() - start == timedelta(seconds=90)


def test_outside_of_a_loop_the_virtual_clock_tells_the_last_time() -> None:
    virtual = VirtualClock()
    assert virtual.now() == datetime(2026, 1, 1, tzinfo=UTC)


def test_asyncio_executors_hold_the_clock_too() -> None:
    async def main() -> bool:
        with anyio.move_on_after(3600) as scope:
            await asyncio.to_thread(time.sleep, 0.05)
        return scope.cancelled_caught

    name, options = virtual_asyncio_options()
    assert anyio.run(main, backend=name, backend_options=options) is False
