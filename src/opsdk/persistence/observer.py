"""What a persistence reconciler tells whoever measures it."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, final

__all__ = ["HookName", "NoObserver", "PersistenceMetrics", "PersistenceObserver"]

HookName: TypeAlias = Literal["upsert", "delete", "conflict"]
"""Which hook: `on_upsert`, `on_delete` or `on_conflict`."""


class PersistenceObserver(Protocol):
    """Is told what a reconciler does, on the loop. Must not block and must not raise."""

    def hook_finished(self, hook: HookName, seconds: float, /) -> None:
        """A hook returned, raised or was cancelled after so many seconds: the time that the database took."""
        ...

    def upserted(self, result: Literal["stored", "not_ready", "conflict", "failed"], /) -> None:
        """`on_upsert` ended: stored; stored but not ready; a conflict that `on_conflict` is asked about; or neither."""
        ...

    def deleted(self, result: Literal["deleted", "failed"], /) -> None:
        """`on_delete` ended."""
        ...

    def made_way(self, result: Literal["resolved", "failed"], /) -> None:
        """`on_conflict` ended."""
        ...

    def not_ready(self, reason: str, /) -> None:
        """An object is stored and not ready, for this reason. Reasons are the author's: a meter has to bound them."""
        ...


class PersistenceMetrics(Protocol):
    """Where reconcilers get what they report to; `opsdk.metrics.Metrics` is one."""

    def persistence(self, kind: str, /) -> PersistenceObserver:
        """For one kind."""
        ...


@final
class NoObserver:
    """Is told, and does nothing."""

    def hook_finished(self, hook: HookName, seconds: float, /) -> None:
        """See `PersistenceObserver`."""

    def upserted(self, result: Literal["stored", "not_ready", "conflict", "failed"], /) -> None:
        """See `PersistenceObserver`."""

    def deleted(self, result: Literal["deleted", "failed"], /) -> None:
        """See `PersistenceObserver`."""

    def made_way(self, result: Literal["resolved", "failed"], /) -> None:
        """See `PersistenceObserver`."""

    def not_ready(self, reason: str, /) -> None:
        """See `PersistenceObserver`."""
