"""What anyio's public calls do not offer: waking a loop from any thread without waiting for it, and telling a
cancellation from a stray exception of that type.

This module is the only one of the library, besides `opsdk.testing`, that knows asyncio and trio by name.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, final

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    import trio

__all__ = [
    "LoopHandle",
    "Signal",
    "ThreadWaker",
    "current_loop",
    "is_on_trio",
    "is_stray_cancellation",
    "no_stray_cancellation",
    "stray_cancellation",
]


class Signal(Protocol):
    """Lets one task wait for something that happens once. Of one loop, and used on it only."""

    def set(self) -> None:
        """It has happened."""
        ...

    def is_set(self) -> bool:
        """Whether it has."""
        ...

    async def wait(self) -> None:
        """Wait until it has. Once, and before it has."""
        ...


class LoopHandle(Protocol):
    """A running loop, as seen from any thread."""

    def call_soon(self, callback: Callable[[], object], /) -> bool:
        """Run `callback` on the loop, soon, without waiting for it. False: the loop has ended, and nothing will run."""
        ...

    def time(self) -> float:
        """The loop's time: what `anyio.current_time` says on it."""
        ...

    def is_here(self) -> bool:
        """Whether this code runs on the loop's thread."""
        ...

    def is_current(self) -> bool:
        """Whether this code runs on this loop."""
        ...

    def signal(self) -> Signal:
        """Something to wait for on this loop, at a fifth of what `anyio.Event` costs."""
        ...


def is_on_trio() -> bool:
    """Whether this task is trio's.

    Trio may be a guest of an asyncio loop. Its tasks tell, for its run goes on while the host's own do something.
    """
    if "trio" not in sys.modules:  # it is optional, and whoever runs on it has imported it
        return False
    import trio

    return trio.lowlevel.in_trio_task()


def current_loop() -> LoopHandle:
    """The loop that this task runs on.

    Raises:
        RuntimeError: It runs on none.
    """
    if is_on_trio():
        import trio

        return _TrioLoop(trio.lowlevel.current_trio_token(), trio.lowlevel.current_clock())
    return _AsyncioLoop(asyncio.get_running_loop())


@contextmanager
def no_stray_cancellation(what: str) -> Generator[None]:
    """Let a cancellation through only if this code really is being cancelled.

    On asyncio, awaiting a future or task that somebody cancelled raises the very exception by which tasks are
    cancelled. A task that ends with it is taken to have been cancelled, and nobody would ever hear that it ended.

    Args:
        what: Whose code the body is, for the error.

    Raises:
        RuntimeError: In place of a cancellation that nobody asked for.
    """
    try:
        yield
    except BaseException as error:
        if is_stray_cancellation(error):
            raise stray_cancellation(what) from error
        raise


def stray_cancellation(what: str) -> RuntimeError:
    """What to raise in its place: `what` is whose code it is."""
    return RuntimeError(
        f"{what} ended as if it had been cancelled, but nobody did: it awaited something that was cancelled"
    )


def is_stray_cancellation(error: BaseException) -> bool:
    """Whether `error`, which just came out of an await, is a cancellation that nobody asked this code for."""
    return isinstance(error, anyio.get_cancelled_exc_class()) and not _is_being_cancelled()


def _is_being_cancelled() -> bool:
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio
        return False
    return task is not None and task.cancelling() > 0


@final
class _AsyncioLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self.time = loop.time

    def call_soon(self, callback: Callable[[], object], /) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # closed
            return False
        return True

    def is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def is_current(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def signal(self) -> Signal:
        return _AsyncioSignal(self._loop)


@final
class _AsyncioSignal:
    __slots__ = ("_future", "_set")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[None] = loop.create_future()
        self._set = False

    def set(self) -> None:
        self._set = True
        if not self._future.done():  # it is, when who waited was cancelled
            self._future.set_result(None)

    def is_set(self) -> bool:
        return self._set

    async def wait(self) -> None:
        await self._future


@final
class _TrioLoop:
    def __init__(self, token: trio.lowlevel.TrioToken, clock: trio.abc.Clock) -> None:
        self._token = token
        self.time = clock.current_time
        self._thread = threading.get_ident()

    def call_soon(self, callback: Callable[[], object], /) -> bool:
        import trio

        try:
            self._token.run_sync_soon(callback)
        except trio.RunFinishedError:
            return False
        return True

    def is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def is_current(self) -> bool:
        import trio

        return trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token

    def signal(self) -> Signal:
        import trio

        return trio.Event()


@final
class ThreadWaker:
    """An alarm that rings from any thread and wakes one waiter.

    Guarantees: `wake` never blocks and may be called before a loop runs, on the loop, and after it has ended; a wake
    that comes while nobody waits is kept, and many of them are one.

    Not promised: that two tasks may wait at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rung = False
        self._waiter: tuple[LoopHandle, anyio.Event] | None = None

    def wake(self) -> None:
        """Let the waiter, or the next one, go on."""
        with self._lock:
            self._rung = True
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            loop, event = waiter
            if loop.is_current():
                event.set()
            else:
                loop.call_soon(event.set)

    async def wait(self) -> None:
        """Wait for a wake since the last `wait` returned.

        Raises:
            RuntimeError: Another task waits already.
        """
        event = anyio.Event()
        with self._lock:
            if self._waiter is not None:
                raise RuntimeError("a ThreadWaker wakes one waiter, and another task waits already")
            if not self._rung:
                self._waiter = (current_loop(), event)
        try:
            if self._rung:
                await anyio.lowlevel.checkpoint()
            else:
                await event.wait()
        except BaseException:
            with self._lock:
                if self._waiter is not None and self._waiter[1] is event:
                    self._waiter = None
            raise
        with self._lock:
            self._rung = False
