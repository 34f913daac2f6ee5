"""The three hooks of one reconciler: called with a limit on their time, measured, their results counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Generic, TypeAlias, final

import anyio
from typing_extensions import TypeVar

from opsdk.persistence._hooks import Hook, HookCaller
from opsdk.persistence.observer import HookName, PersistenceObserver
from opsdk.protocols import KubeObject
from opsdk.types import Request

__all__ = ["ConflictRecognizer", "Hooks"]

T = TypeVar("T", bound=KubeObject)

ConflictRecognizer: TypeAlias = Callable[[Exception], bool]
"""Says whether what `on_upsert` raised is the violation of a unique constraint."""


@final
class Hooks(Generic[T]):
    """What an author gave to keep objects in a database.

    Args:
        on_upsert: Stores an object.
        on_delete: Removes what was stored for a uid.
        on_conflict: Makes way for an object; None: a conflict is a failure like any other.
        is_conflict: What counts as a conflict.
        threads: How many hooks that are plain functions may run at once.
        timeout: How long one hook may take; None: as long as it likes.
        observer: Is told how long they took.
    """

    def __init__(
        self,
        *,
        on_upsert: Hook[T],
        on_delete: Hook[str],
        on_conflict: Hook[T] | None,
        is_conflict: ConflictRecognizer,
        threads: int,
        timeout: timedelta | None,
        observer: PersistenceObserver,
    ) -> None:
        if timeout is not None and timeout <= timedelta(0):
            raise ValueError(f"timeout is {timeout}; it must be positive")
        self._on_upsert = on_upsert
        self._on_delete = on_delete
        self._on_conflict = on_conflict
        self._is_conflict = is_conflict
        self._caller = HookCaller(threads)
        self._timeout = timeout
        self._observer = observer

    async def upsert(self, request: Request, obj: T, /) -> None:
        """Call `on_upsert`. Raises what it raises, and TimeoutError when it takes too long."""
        async with self._measured("upsert"):
            await self._caller.call(request, self._on_upsert, obj)

    async def delete(self, request: Request, uid: str, /) -> None:
        """Call `on_delete`; see `upsert`."""
        try:
            async with self._measured("delete"):
                await self._caller.call(request, self._on_delete, uid)
        except Exception:
            self._observer.deleted("failed")
            raise
        self._observer.deleted("deleted")

    async def make_way(self, request: Request, on_conflict: Hook[T], obj: T, /) -> None:
        """Call `on_conflict`; see `upsert`."""
        try:
            async with self._measured("conflict"):
                await self._caller.call(request, on_conflict, obj)
        except Exception:
            self._observer.made_way("failed")
            raise
        self._observer.made_way("resolved")

    def conflict_hook(self, error: Exception, /) -> Hook[T] | None:
        """Who makes way after `error`; None: it is no conflict, or nobody does."""
        if self._on_conflict is None or not self._is_conflict(error):
            return None
        return self._on_conflict

    @asynccontextmanager
    async def _measured(self, hook: HookName) -> AsyncGenerator[None]:
        began = anyio.current_time()
        try:
            if self._timeout is None:
                yield
                return
            with anyio.move_on_after(self._timeout.total_seconds()) as scope:
                yield
            if scope.cancelled_caught:
                raise TimeoutError(f"on_{hook} was cancelled after {self._timeout.total_seconds():g} s")
        finally:
            self._observer.hook_finished(hook, anyio.current_time() - began)
