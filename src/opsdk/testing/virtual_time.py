"""Time that jumps: a test that waits for an hour takes no time, on asyncio and on trio.

When no task can run, the clock jumps to the next timer instead of waiting for it. While a worker thread is at work
(`anyio.to_thread`, an asyncio executor) the clock stands still and the loop waits for the thread for real, so a timer
never overtakes a thread.

Not promised: anything about sockets, whose peers live in real time, or about threads that the loop did not start. Join
those in a worker thread (`await anyio.to_thread.run_sync(thread.join)`); use a plain backend for sockets. A timeout
around a worker thread that never returns never fires.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias, final

import anyio
import trio
import trio.abc
import trio.testing

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = ["BackendOptions", "VirtualClock", "virtual_asyncio_options", "virtual_backends", "virtual_trio_options"]

BackendOptions: TypeAlias = tuple[str, dict[str, object]]
"""What anyio's pytest plugin takes from an `anyio_backend` fixture: a backend's name and its options."""

_LOOK_AGAIN_SECONDS = 0.02

DEFAULT_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall-clock time at which a `VirtualClock` starts by default."""


@final
class VirtualClock:
    """A wall clock that follows the loop's time: `start`, plus what has passed on the loop since the clock's first use.

    Args:
        start: The first time it tells; aware. Default: 2026-01-01T00:00:00Z.
    """

    def __init__(self, start: datetime = DEFAULT_EPOCH) -> None:
        self._start = start
        self._last = start
        self._base: float | None = None

    def now(self) -> datetime:
        """The time now, aware. Outside of a loop: the time it told last."""
        try:
            current = anyio.current_time()
        except RuntimeError:
            return self._last
        if self._base is None:
            self._base = current
        self._last = self._start + timedelta(seconds=current - self._base)
        return self._last


def virtual_asyncio_options() -> BackendOptions:
    """Asyncio on virtual time that starts at zero in every loop."""
    return "asyncio", {"loop_factory": VirtualTimeLoop}


def virtual_trio_options() -> BackendOptions:
    """Trio on virtual time; it goes on from run to run if the same options are used again."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    return "trio", {"clock": clock, "instruments": [_HoldClockForThreads(clock)]}


def virtual_backends() -> list[BackendOptions]:
    """Both backends on virtual time: the `params` of an `anyio_backend` fixture, with `ids=["asyncio", "trio"]`."""
    return [virtual_asyncio_options(), virtual_trio_options()]


@final
class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time moves only by jumping to the next timer."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))
        # asyncio runs timers that are due within its clock's resolution. A nanosecond vanishes in a float of years, and
        # a timer due exactly now would then never run on a clock that stands still.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def jump(self, seconds: float) -> None:
        """Move time forward, at least by the smallest step there is: a timer rounded away would be waited for twice."""
        self._now = max(self._now + seconds, math.nextafter(self._now, math.inf))

    def has_busy_threads(self) -> bool:
        """Whether a worker thread of this loop still works."""
        for thread in threading.enumerate():
            # anyio's workers (its own and the default executor's) say which loop they serve and who is idle.
            serves_us = getattr(thread, "loop", None) is self and not getattr(thread, "stopping", False)
            if serves_us and thread not in getattr(thread, "idle_workers", ()):
                return True
        executor = getattr(self, "_default_executor", None)
        # While the loop closes, a thread of its own joins the executor's, under a timeout that must not jump.
        closing = bool(getattr(self, "_executor_shutdown_called", False))
        return executor is not None and (closing or not _executor_idle(executor))


def _executor_idle(executor: object) -> bool:
    semaphore = getattr(executor, "_idle_semaphore", None)
    threads: Mapping[object, object] | tuple[object, ...] = getattr(executor, "_threads", ())
    return semaphore is None or getattr(semaphore, "_value", 0) >= len(threads)


@final
class _JumpingSelector(selectors.BaseSelector):
    """Waits for files like any selector, and jumps where that one would wait for a timer."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            return self._real.select(None)  # only a thread or a file can wake the loop now
        if self._loop.has_busy_threads():
            return self._real.select(_LOOK_AGAIN_SECONDS)  # a thread may end without a word, if nobody waits for it
        self._loop.jump(timeout)
        return ready

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


@final
class _HoldClockForThreads(trio.abc.Instrument):
    """Keeps a mock clock from jumping while worker threads work."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        wanted = math.inf if trio.testing.active_thread_count() else 0.0
        if self._clock.autojump_threshold != wanted:
            self._clock.autojump_threshold = wanted
