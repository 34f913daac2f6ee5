"""A wake-up from any thread, on both backends."""

from __future__ import annotations

import asyncio
import threading
import time

import anyio
import anyio.to_thread
import pytest
import trio

from opsdk._backend import LoopHandle, ThreadWaker, current_loop

pytestmark = pytest.mark.anyio


async def test_a_wake_before_the_wait_is_kept_and_many_are_one() -> None:
    waker = ThreadWaker()
    waker.wake()
    waker.wake()
    await waker.wait()
    with anyio.move_on_after(60) as scope:
        await waker.wait()
    assert scope.cancelled_caught


def test_a_wake_before_any_loop_runs_is_kept() -> None:
    waker = ThreadWaker()
    waker.wake()
    anyio.run(waker.wait)


async def test_a_wake_on_the_loop_wakes_the_waiter() -> None:
    waker = ThreadWaker()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waker.wait)
        await anyio.wait_all_tasks_blocked()
        waker.wake()


async def test_a_wake_from_a_thread_wakes_the_waiter() -> None:
    waker = ThreadWaker()

    def work() -> None:
        time.sleep(0.02)
        waker.wake()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, work)
        await waker.wait()


async def test_a_cancelled_wait_leaves_the_waker_usable_and_keeps_later_wakes() -> None:
    waker = ThreadWaker()
    with anyio.move_on_after(1):
        await waker.wait()
    waker.wake()
    with anyio.fail_after(1):
        await waker.wait()


async def test_a_second_waiter_is_refused() -> None:
    waker = ThreadWaker()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waker.wait)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="one waiter"):
            await waker.wait()
        waker.wake()


def test_a_wake_after_the_loop_has_ended_does_nothing() -> None:
    waker = ThreadWaker()

    async def wait_in_vain() -> None:
        with anyio.move_on_after(0.001):
            await waker.wait()

    for backend in ("asyncio", "trio"):
        anyio.run(wait_in_vain, backend=backend)
        waker.wake()
        anyio.run(waker.wait, backend=backend)


async def test_a_loop_is_seen_from_other_threads() -> None:
    loop = current_loop()
    seen: list[float] = []
    done = anyio.Event()

    def work() -> tuple[bool, bool]:
        seen.append(loop.time())
        assert loop.call_soon(done.set)
        return loop.is_here(), loop.is_current()

    assert (loop.is_here(), loop.is_current()) == (True, True)
    assert await anyio.to_thread.run_sync(work) == (False, False)
    await done.wait()
    assert seen == [pytest.approx(anyio.current_time())]


def test_a_host_and_its_guest_have_loops_of_their_own() -> None:
    async def turn() -> None:
        loop = current_loop()
        signal = loop.signal()
        loop.call_soon(signal.set)
        await signal.wait()
        assert loop.time() == pytest.approx(anyio.current_time(), abs=60)

    async def host() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[object] = loop.create_future()
        begun = asyncio.Event()
        leave = trio.Event()

        async def guest() -> None:
            await turn()
            begun.set()
            await leave.wait()

        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=lambda outcome: ended.set_result(outcome.unwrap()),
        )
        await begun.wait()
        await turn()  # while the guest waits
        leave.set()
        await ended

    asyncio.run(host())


def test_an_ended_loop_refuses_callbacks() -> None:
    for backend in ("asyncio", "trio"):

        async def main() -> LoopHandle:
            return current_loop()

        assert anyio.run(main, backend=backend).call_soon(threading.get_ident) is False


async def test_wakes_from_many_threads_lose_nothing() -> None:
    waker = ThreadWaker()
    counter = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal counter
        for _ in range(200):
            with lock:
                counter += 1
            waker.wake()

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(anyio.to_thread.run_sync, work)
        while counter < 800:
            await waker.wait()
