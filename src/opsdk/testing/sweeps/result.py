"""What a sweep found, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from opsdk.testing.sweeps._calls import ApiCall, WatchEventSeen

__all__ = ["SweepFailure", "SweepResult"]

_SHOWN_FAILURES: Final = 5
_SHOWN_LINES: Final = 12


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFailure:
    """One run that did not end as it should.

    Args:
        plan: What to pass as `only=` to run just this: `crash-after:3`.
        what: The faults in words, with the calls that they hit.
        seed: The sweep's seed.
        reason: What was wrong, in a line.
        details: The same, a line a difference; Secret data is redacted.
    """

    plan: str
    what: str
    seed: int
    reason: str
    details: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        """How to see it again, in three lines."""
        return (
            f"{self.what}\n"
            f'  to run just this: sweep(…, only="{self.plan}", seed={self.seed})\n'
            f"  {self.reason}{':' if self.details else ''}"
        )

    def __str__(self) -> str:
        lines = [f"    {line}" for line in self.details[:_SHOWN_LINES]]
        if len(self.details) > _SHOWN_LINES:
            lines.append(f"    … and {len(self.details) - _SHOWN_LINES} more")
        return "\n".join([self.recipe, *lines])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """A whole sweep.

    Args:
        writes: The operator's writes in the run without a fault, in order.
        reads: Its reads.
        events: What its watches brought.
        runs: The plans that were run, those without a fault aside.
        missed: Those of them whose fault did not happen at the call that it was meant for, because the run took
            another way before it: a pair's second fault after its first, or an operator whose runs do not repeat.
        failures: What went wrong.
        requests: How many calls the operator made in all runs.
        virtual_seconds: How much time passed in all runs.
    """

    writes: Sequence[ApiCall]
    reads: Sequence[ApiCall]
    events: Sequence[WatchEventSeen]
    runs: Sequence[str]
    missed: Sequence[str]
    failures: Sequence[SweepFailure]
    requests: int
    virtual_seconds: float

    def __str__(self) -> str:
        if not self.failures:
            missed = f"; in {len(self.missed)} of them it did not happen where it was planned" if self.missed else ""
            return f"all {len(self.runs)} runs with a fault ended as the one without{missed}"
        by_trouble: dict[tuple[str, ...], list[SweepFailure]] = {}
        for failure in self.failures:
            # The end state is the same trouble only if it differs in the same way; of others the reason says enough.
            trouble = (failure.reason, *failure.details) if "state" in failure.reason else (failure.reason,)
            by_trouble.setdefault(trouble, []).append(failure)
        parts = [
            f"{len(self.failures)} of {len(self.runs)} runs with a fault did not end as the one without"
            if self.runs
            else "the operator does not do its work, and nothing was done to it"
        ]
        for same in list(by_trouble.values())[:_SHOWN_FAILURES]:
            parts.append(str(same[0]))
            if len(same) > 1:
                others = ", ".join(failure.plan for failure in same[1:_SHOWN_LINES])
                parts.append(f"    the same with {others}{', …' if len(same) > _SHOWN_LINES else ''}")
        if len(by_trouble) > _SHOWN_FAILURES:
            parts.append(f"… and {len(by_trouble) - _SHOWN_FAILURES} more kinds of failures, see SweepError.result")
        return "\n\n".join(parts)
