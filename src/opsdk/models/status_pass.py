"""Who is going to write the status of the object in hand, so that those who help need not.

A state machine runs its hooks inside a `StatusPass` and writes the object's status once, afterwards. Helpers that set
conditions (`opsdk.models.set_condition`) note them there, so that they are stored even when the hook fails; and who
would otherwise write the status by itself can ask whether that is already somebody's work.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import final

from lightkube.models.meta_v1 import Condition

__all__ = ["StatusPass", "note_condition", "status_pass", "status_pass_of"]


@final
class StatusPass:
    """One pass over one object, told apart by its list of conditions.

    Attributes:
        kept: The conditions that helpers set during the pass, by type.
    """

    def __init__(self, conditions: list[Condition]) -> None:
        self._conditions = conditions
        self.kept: dict[str, Condition] = {}

    def is_about(self, conditions: list[Condition]) -> bool:
        """Whether the list is the one of the object in hand: the list itself, not one that equals it."""
        return self._conditions is conditions


_passes: ContextVar[tuple[StatusPass, ...]] = ContextVar("opsdk_status_passes", default=())


@contextmanager
def status_pass(conditions: list[Condition]) -> Generator[StatusPass]:
    """Announce that the status that holds `conditions` is written after the body, whether or not the body raises."""
    current = StatusPass(conditions)
    token = _passes.set((*_passes.get(), current))
    try:
        yield current
    finally:
        _passes.reset(token)


def status_pass_of(conditions: list[Condition]) -> StatusPass | None:
    """The pass that is going to write the status that holds `conditions`; None when there is none."""
    return next((entry for entry in reversed(_passes.get()) if entry.is_about(conditions)), None)


def note_condition(conditions: list[Condition], condition: Condition) -> None:
    """Tell the pass that is about `conditions`, if there is one, that a helper set `condition` in it."""
    if (entry := status_pass_of(conditions)) is not None:
        entry.kept[condition.type] = condition
