"""Why an object is where it is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import final

import msgspec

__all__ = ["Explanation", "TransitionExplanation"]


@final
class TransitionExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """One way out of the state, as it stands now.

    Args:
        to: The state it leads to.
        reason: The transition's reason.
        holds: Whether its `when` holds now; None when it has none, or when asking raised.
        remaining: How long its `after` still has to run; zero when it is up, None when it has none.
        error: What asking `when` raised; empty when nothing.
    """

    to: str
    reason: str
    holds: bool | None
    remaining: timedelta | None
    error: str = ""

    @property
    def ready(self) -> bool:
        """Whether the transition would be taken now, were it the first."""
        return not self.error and self.holds is not False and not self.remaining

    def __str__(self) -> str:
        parts: list[str] = []
        if self.error:
            parts.append(f"its condition raised {self.error}")
        elif self.holds is not None:
            parts.append("its condition holds" if self.holds else "its condition does not hold")
        if self.remaining is not None:
            parts.append(f"due in {self.remaining}" if self.remaining else "its time is up")
        reason = f" ({self.reason})" if self.reason else ""
        return f"to {self.to!r}{reason}: {', '.join(parts)}"


@final
class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Where an object is, since when, and what it waits for.

    Args:
        state: The state in status; empty before the first pass.
        known: Whether the graph has that state.
        since: When it got there; None when the history does not say.
        pending_entry: Whether `enter` has yet to succeed.
        deleting: Whether the object is being deleted.
        transitions: The ways out of the state.
        waits_for: What the next pass would do, or what has to happen first.
    """

    state: str
    known: bool
    since: datetime | None
    pending_entry: bool
    deleting: bool
    transitions: tuple[TransitionExplanation, ...]
    waits_for: str

    def __str__(self) -> str:
        since = f" since {self.since.isoformat()}" if self.since is not None else ""
        lines = [f"state {self.state!r}{since}: {self.waits_for}"]
        lines += [f"  {transition}" for transition in self.transitions]
        return "\n".join(lines)
