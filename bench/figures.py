"""What a benchmark finds: our cost and another's, of one run, and how they relate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import final

__all__ = ["Figure", "figure", "table"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One comparison.

    Args:
        name: What was done.
        unit: Of `ours` and `theirs`.
        ours: What it cost with opsdk.
        theirs: What it cost with the other.
        other: The other's name.
        ratio: Ours through theirs; the median of the rounds' own ratios, which a busy machine disturbs least.
        goal: The ratio must not be above; None: there is no goal.
    """

    name: str
    unit: str
    ours: float
    theirs: float
    other: str
    ratio: float
    goal: float | None = None

    @property
    def missed(self) -> bool:
        """Whether there is a goal and it is not reached."""
        return self.goal is not None and self.ratio > self.goal


def figure(
    name: str,
    unit: str,
    rounds: Sequence[tuple[float, float]],
    *,
    other: str,
    goal: float | None = None,
) -> Figure:
    """The medians of rounds in which both did the same, one after the other.

    Args:
        name: What was done.
        unit: Of the costs.
        rounds: Our cost and the other's, round by round.
        other: The other's name.
        goal: The ratio must not be above.
    """
    return Figure(
        name=name,
        unit=unit,
        ours=median(ours for ours, _ in rounds),
        theirs=median(theirs for _, theirs in rounds),
        other=other,
        ratio=median(ours / theirs for ours, theirs in rounds),
        goal=goal,
    )


def table(figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table."""
    rows = [
        (
            one.name,
            one.other,
            f"{one.ours:.3g} {one.unit}",
            f"{one.theirs:.3g} {one.unit}",
            f"{one.ratio:.2f}",
            "" if one.goal is None else f"≤ {one.goal:g}{' MISSED' if one.missed else ''}",
        )
        for one in figures
    ]
    head = ("what", "against", "opsdk", "other", "ratio", "goal")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [head, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
    )
