"""What a controller tells whoever measures it."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from opsdk.workqueue import WorkQueueMetrics

__all__ = ["ControllerMetrics", "ReconcileMetrics", "ReconcileOutcome", "WorkInProgress"]

ReconcileOutcome: TypeAlias = Literal[
    "success", "requeue", "requeue_after", "error", "terminal_error", "timeout", "panic", "cancelled"
]
"""How a reconcile ended.

The first three are successes: nothing asked for, again at once, again later. The next four are failures: one that is
retried, one that is not, one by the controller's own timeout, and one by an exception that nobody meant to raise,
neither an opsdk error nor an OSError. Cancelled from outside is neither.
"""


class ReconcileMetrics(Protocol):
    """Is told what a controller does, on the loop. Must not block and must not raise."""

    def workers(self, count: int, /) -> None:
        """So many reconciles may run at once."""
        ...

    def started(self) -> None:
        """A reconcile begins."""
        ...

    def finished(self, outcome: ReconcileOutcome, seconds: float, /) -> None:
        """A reconcile ended after so many seconds; there is one for each `started`."""
        ...

    def self_triggered(self) -> None:
        """An object was found whose every reconcile causes the next one."""
        ...


class WorkInProgress(Protocol):
    """Knows what a queue's workers are at; `WorkQueue` does. Safe from any thread."""

    @property
    def name(self) -> str:
        """The queue."""
        ...

    def in_progress(self) -> tuple[float, float]:
        """Seconds of unfinished work in all, and of the longest-running one."""
        ...


class ControllerMetrics(Protocol):
    """Where controllers get what they report to; `opsdk.metrics.Metrics` is one."""

    def reconcile(self, controller: str, /) -> ReconcileMetrics:
        """For one controller."""
        ...

    def workqueue(self, name: str, /) -> WorkQueueMetrics:
        """For one workqueue."""
        ...

    def watch_workqueue(self, queue: WorkInProgress, /) -> None:
        """Ask this queue what is in progress, whenever that is wanted."""
        ...
