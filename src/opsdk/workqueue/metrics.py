"""What a queue tells whoever measures it."""

from __future__ import annotations

from typing import Protocol, final

__all__ = ["NoMetrics", "WorkQueueMetrics"]


class WorkQueueMetrics(Protocol):
    """Is told what a queue does. Called from any thread with the queue locked: must not block, raise, or call back.

    What is under way is not pushed but pulled: `WorkQueue.in_progress`.
    """

    def depth(self, ready: int, /) -> None:
        """So many keys wait for a worker now; those with a delay do not count."""
        ...

    def added(self) -> None:
        """A key became ready that was not; adds that merge into an earlier one do not count."""
        ...

    def leased(self, waited_seconds: float, /) -> None:
        """A worker took a key that had been ready for so long."""
        ...

    def released(self, worked_seconds: float, /) -> None:
        """A worker let go of a key after so long."""
        ...

    def retried(self) -> None:
        """A key was added with its backoff."""
        ...


@final
class NoMetrics:
    """Listens to nothing."""

    def depth(self, ready: int, /) -> None:
        """Ignore it."""

    def added(self) -> None:
        """Ignore it."""

    def leased(self, waited_seconds: float, /) -> None:
        """Ignore it."""

    def released(self, worked_seconds: float, /) -> None:
        """Ignore it."""

    def retried(self) -> None:
        """Ignore it."""
