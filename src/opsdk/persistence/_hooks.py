"""Calls an author's hooks: coroutine functions on the loop, plain functions in worker threads."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar, final

import anyio
import anyio.to_thread

from opsdk.errors import RetryError
from opsdk.types import Request

__all__ = ["Hook", "HookCaller"]

A = TypeVar("A")

Hook: TypeAlias = Callable[[A], Awaitable[None] | None]
"""A function of one argument, sync or async, that returns nothing."""

_STILL_RUNNING_RETRY: Final = timedelta(seconds=15)


@final
class HookCaller:
    """Calls hooks for one reconciler.

    A plain function runs in a worker thread, so that a blocking database driver does not block the loop. When its pass
    is cancelled (at a shutdown: after the grace period) the thread cannot be stopped and is left alone; until it has
    returned, no other thread is started for the same object.

    Args:
        threads: How many worker threads may be busy at once.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._limiter: anyio.CapacityLimiter | None = None
        self._busy: dict[Request, _HookThread] = {}

    async def call(self, request: Request, hook: Hook[A], argument: A, /) -> None:
        """Run the hook to its end.

        Raises:
            RetryError: An earlier call for the same object was cancelled and its thread still runs.
            Exception: What the hook raised.
        """
        if _is_async(hook):
            outcome = hook(argument)
        else:
            outcome = await self._in_thread(request, hook, argument)
        if inspect.isawaitable(outcome):  # also from a lambda around a coroutine function
            await outcome

    async def _in_thread(self, request: Request, hook: Hook[A], argument: A) -> Awaitable[None] | None:
        earlier = self._busy.get(request)
        if earlier is not None and not earlier.done:
            raise RetryError(
                f"{request}: the thread of a cancelled call still runs", requeue_after=_STILL_RUNNING_RETRY
            )
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._threads)
        thread = self._busy[request] = _HookThread(lambda: hook(argument))
        try:
            await anyio.to_thread.run_sync(thread.run, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            if thread.withdraw() or thread.done:
                self._busy.pop(request, None)
        return thread.outcome


@final
class _HookThread:
    """One call in a worker thread, that can be withdrawn as long as it has not begun."""

    def __init__(self, call: Callable[[], Awaitable[None] | None]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._begun = False
        self._withdrawn = False
        self.done = False
        self.outcome: Awaitable[None] | None = (
            None  # not returned by `run`: trio refuses threads that return coroutines
        )

    def run(self) -> None:
        with self._lock:
            if self._withdrawn:
                return
            self._begun = True
        try:
            self.outcome = self._call()
        finally:
            self.done = True

    def withdraw(self) -> bool:
        """Make sure that a call that has not begun never does. Returns whether it had not."""
        with self._lock:
            if not self._begun:
                self._withdrawn = True
            return self._withdrawn


def _is_async(hook: Callable[..., object]) -> bool:
    while isinstance(hook, functools.partial):
        hook = hook.func
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None))  # noqa: B004 - an object may have an async __call__
