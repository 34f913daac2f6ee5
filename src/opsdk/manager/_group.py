"""A set of runnables that start and stop together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol, final, runtime_checkable

import anyio
from anyio.abc import TaskGroup

from opsdk._backend import no_stray_cancellation
from opsdk._groups import unwrap
from opsdk.protocols import Runnable

__all__ = ["Drainable", "RunnableGroup"]

_logger = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 5.0


@runtime_checkable
class Drainable(Protocol):
    """A runnable that can end by itself: it takes no new work, finishes what it is at, and `run` returns."""

    def drain(self) -> None:
        """Begin to end. Returns at once; harmless when called twice."""
        ...


@final
class RunnableGroup:
    """Runs runnables side by side. One that fails is reported; the others go on until the group is stopped.

    Args:
        name: For logs.
        on_failure: Is told about what a runnable raised.
    """

    def __init__(self, name: str, on_failure: Callable[[Exception], None]) -> None:
        self._name = name
        self._on_failure = on_failure
        self._waiting: list[Runnable] = []
        self._running: dict[int, tuple[Runnable, anyio.CancelScope]] = {}
        self._tasks: TaskGroup | None = None
        self._closed = False
        self._idle = anyio.Event()

    def add(self, runnable: Runnable, /) -> None:
        """Run this one too: from the start on, or at once when the group runs. After the stop, never."""
        if self._closed:
            _logger.warning("%r came when the %s were being stopped; it does not run", runnable, self._name)
        elif self._tasks is None:
            self._waiting.append(runnable)
        else:
            self._spawn(self._tasks, runnable)

    def start(self, tasks: TaskGroup, /) -> None:
        """Run everything that was added. Does nothing when the group was stopped before."""
        if self._closed:
            return
        self._tasks = tasks
        for runnable in self._waiting:
            self._spawn(tasks, runnable)
        self._waiting.clear()

    def _spawn(self, tasks: TaskGroup, runnable: Runnable) -> None:
        scope = anyio.CancelScope()
        self._running[id(scope)] = (runnable, scope)
        tasks.start_soon(self._run, runnable, scope, name=f"opsdk {self._name}: {type(runnable).__name__}")

    async def _run(self, runnable: Runnable, scope: anyio.CancelScope) -> None:
        try:
            with scope, no_stray_cancellation(type(runnable).__name__):
                await runnable.run()
        except Exception as error:  # noqa: BLE001 - reported, and raised by the manager at its end
            cause = unwrap(error)
            self._on_failure(cause if isinstance(cause, Exception) else error)
        finally:
            del self._running[id(scope)]
            if self._closed and not self._running:
                self._idle.set()

    def cancel(self) -> None:
        """Cancel everything at once. `stop` then waits for the ends."""
        self._closed = True
        for _, scope in list(self._running.values()):
            scope.cancel()

    async def stop(self, grace_seconds: float, *, hurry: anyio.Event) -> None:
        """Let what runs come to its end, cancel what has not after the grace period, and wait for that.

        Args:
            grace_seconds: How long what can drain may take. What cannot is cancelled at once.
            hurry: When it is set, the grace is over.
        """
        self._closed = True
        if not self._running:
            return
        for runnable, scope in list(self._running.values()):
            if isinstance(runnable, Drainable) and grace_seconds > 0:
                runnable.drain()
            else:
                scope.cancel()
        async with anyio.create_task_group() as wait:
            wait.start_soon(self._limit, wait.cancel_scope, grace_seconds, hurry)
            await self._idle.wait()
            wait.cancel_scope.cancel()
        self.cancel()
        while self._running:
            with anyio.move_on_after(_PATIENCE_SECONDS):
                await self._idle.wait()
            if self._running:
                names = ", ".join(sorted(type(runnable).__name__ for runnable, _ in self._running.values()))
                _logger.warning("%s do not end although they are cancelled: %s", self._name, names)

    @staticmethod
    async def _limit(scope: anyio.CancelScope, seconds: float, hurry: anyio.Event) -> None:
        with anyio.move_on_after(seconds):
            await hurry.wait()
        scope.cancel()
