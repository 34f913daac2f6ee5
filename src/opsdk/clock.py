"""What time it is, so that tests can say so.

Durations inside the runtime are measured with anyio's own clock (`anyio.current_time`), which test backends replace.
This module is about *wall* time: timestamps in status, events and Leases, and timers that survive a restart because
they are computed from such timestamps.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Protocol, final

__all__ = ["Clock", "ManualClock", "SystemClock", "current_clock", "now", "using"]


class Clock(Protocol):
    """Tells wall-clock time."""

    def now(self) -> datetime:
        """The time now, aware and in UTC."""
        ...


@final
class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time now, aware and in UTC."""
        return datetime.now(UTC)


@final
class ManualClock:
    """A clock that moves only when told to.

    Args:
        start: The first time it tells; aware. Default: 2026-01-01T00:00:00Z.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start if start is not None else datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """The time it was last set to."""
        return self._now

    def advance(self, by: timedelta, /) -> None:
        """Move forward.

        Raises:
            ValueError: `by` is negative.
        """
        if by < timedelta(0):
            msg = f"a clock cannot go back: advance({by})"
            raise ValueError(msg)
        self._now += by


_current: ContextVar[Clock] = ContextVar("opsdk_clock")
_SYSTEM = SystemClock()


def current_clock() -> Clock:
    """The clock of this context: the system's, unless `using` says otherwise."""
    return _current.get(_SYSTEM)


def now() -> datetime:
    """The time now by this context's clock, aware and in UTC."""
    return current_clock().now()


@contextmanager
def using(clock: Clock) -> Generator[None]:
    """Make `clock` the current one for the body and for tasks started in it."""
    token = _current.set(clock)
    try:
        yield
    finally:
        _current.reset(token)
