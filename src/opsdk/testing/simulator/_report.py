"""Texts of failures: what was expected, what came, what else is queued."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from opsdk.testing.simulator._action import Action, RecordedEvent

__all__ = ["expectation_text", "queued_text", "unexpected_text"]

_SHOWN_ACTIONS = 12


def expectation_text(
    expected: str,
    came: Action | RecordedEvent | None,
    *,
    why: str,
    rest: Sequence[Action | RecordedEvent],
    refused: Sequence[Action],
) -> str:
    """The text of a failed `expect_…`."""
    lines = [f"expected: {expected}"]
    if came is None:
        lines.append(
            "came:     nothing; everything recorded has been taken" if not why else f"came:     nothing; {why}"
        )
    else:
        lines.append(f"came:     {came}{f', but {why}' if why else ''}")
        if isinstance(came, Action):
            lines += _indented(came.difference(), 12)
    lines += queued_text("also queued", rest)
    lines += _refused_text(refused)
    return "\n".join(lines)


def unexpected_text(actions: Sequence[Action], refused: Sequence[Action]) -> str:
    """The text of a run that wrote more than was expected."""
    count = len(actions)
    head = f"{count} write{'s' if count > 1 else ''} that no expect_… call took"
    return "\n".join([*queued_text(head, actions), *_refused_text(refused)])


def queued_text(head: str, recorded: Sequence[Action | RecordedEvent]) -> list[str]:
    """Lines that list what is queued, each write with its difference."""
    if not recorded:
        return []
    lines = [f"{head}:"]
    for number, item in enumerate(islice(recorded, _SHOWN_ACTIONS), start=1):
        lines.append(f"  {number}. {item}")
        if isinstance(item, Action):
            lines += _indented(item.difference(), 8)
    if len(recorded) > _SHOWN_ACTIONS:
        lines.append(f"  … and {len(recorded) - _SHOWN_ACTIONS} more")
    return lines


def _refused_text(refused: Sequence[Action]) -> list[str]:
    if not refused:
        return []
    return ["refused by the API server (these changed nothing):", *(f"  - {action}" for action in refused[-5:])]


def _indented(lines: Iterable[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]
