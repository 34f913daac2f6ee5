"""The watchdog, in real time: what it sees is real threads."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta

import anyio
import pytest

from opsdk.manager.watchdog import Watchdog

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def block_the_loop(seconds: float) -> None:
    time.sleep(seconds)


async def test_w15_a_blocked_loop_is_measured_from_another_thread_and_its_stack_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watchdog = Watchdog(warn_after=timedelta(seconds=0.2), interval=timedelta(seconds=0.05))
    seen: list[float] = []
    done = threading.Event()

    def probe() -> None:
        while not done.wait(0.02):
            seen.append(watchdog.silence_seconds)

    prober = threading.Thread(target=probe)
    with caplog.at_level(logging.WARNING, "opsdk.manager.watchdog"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.run)
            await anyio.sleep(0.3)
            assert watchdog.silence_seconds < 0.2
            prober.start()
            block_the_loop(0.8)
            done.set()
            prober.join()
            await anyio.sleep(0.3)
            assert watchdog.silence_seconds < 0.2
            tasks.cancel_scope.cancel()
    assert max(seen) > 0.5
    assert "block_the_loop" in caplog.text
    assert "turns again" in caplog.text


async def test_an_idle_loop_is_not_a_blocked_one(caplog: pytest.LogCaptureFixture) -> None:
    """Nor is one on a machine that stands still for a moment, as machines that are shared do."""
    watchdog = Watchdog(warn_after=timedelta(seconds=1), interval=timedelta(seconds=0.05))
    with caplog.at_level(logging.WARNING, "opsdk.manager.watchdog"), anyio.move_on_after(1.5):
        await watchdog.run()
    assert caplog.text == ""


async def test_nothing_is_silent_before_the_loop_runs() -> None:
    assert Watchdog(warn_after=timedelta(seconds=1)).silence_seconds == 0


async def test_the_watchdog_takes_its_thread_with_it_and_beats_on_the_loop() -> None:
    beats: list[int] = []
    watchdog = Watchdog(
        warn_after=timedelta(seconds=1),
        interval=timedelta(seconds=0.02),
        on_beat=lambda: beats.append(threading.get_ident()),
    )
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.run)
            while len(beats) <= 3:  # noqa: ASYNC110 - the watchdog knows of no listener but that one
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    assert set(beats) == {threading.get_ident()}
    assert not [thread for thread in threading.enumerate() if thread.name == "opsdk-watchdog"]
