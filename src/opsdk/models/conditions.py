"""Status conditions, by the API conventions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import get_args

from lightkube.models.meta_v1 import Condition

from opsdk import clock
from opsdk.models._names import CONDITION_TYPE, REASON
from opsdk.models._times import to_second
from opsdk.models.status_pass import note_condition
from opsdk.types import ConditionStatus

__all__ = ["MAX_MESSAGE", "find_condition", "is_condition_true", "set_condition"]

MAX_MESSAGE = 32768
"""The longest message that the API takes, in characters."""


def find_condition(conditions: Iterable[Condition] | None, type: str) -> Condition | None:  # noqa: A002 - the API's word
    """The condition of that type, if there is one."""
    return next((condition for condition in conditions or () if condition.type == type), None)


def is_condition_true(conditions: Iterable[Condition] | None, type: str) -> bool:  # noqa: A002 - the API's word
    """Whether the condition of that type is there and true."""
    found = find_condition(conditions, type)
    return found is not None and found.status == "True"


@lru_cache(maxsize=1024)  # programs have few, and set them again and again
def _check(type: str, status: str, reason: str) -> None:  # noqa: A002 - the API's word
    """Refuse what the API does not take.

    Raises:
        ValueError: One of them is no such word.
    """
    if not CONDITION_TYPE.fullmatch(type) or len(type) > 316:
        raise ValueError(f"condition type {type!r} must be a CamelCase word, such as Ready or example.com/Ready")
    if status not in get_args(ConditionStatus):
        raise ValueError(f"condition {type}: status {status!r} must be one of True, False and Unknown (as text)")
    if not REASON.fullmatch(reason) or len(reason) > 1024:
        raise ValueError(f"condition {type}: reason {reason!r} must be one CamelCase word, such as Synced")


def set_condition(
    conditions: list[Condition],
    *,
    type: str,  # noqa: A002 - the API's word
    status: ConditionStatus,
    reason: str,
    message: str = "",
    observed_generation: int | None = None,
    now: datetime | None = None,
) -> bool:
    """Set one condition in place; the others stay as they are.

    Args:
        conditions: The list, as the object holds it.
        type: The condition's type, a CamelCase word, with a DNS prefix if need be.
        status: True, False or Unknown.
        reason: Why, in one CamelCase word.
        message: Text for people; cut to what the API takes.
        observed_generation: The generation of the spec that this is about; None leaves what is there.
        now: When it became so; default: `opsdk.clock.now()`.

    Returns:
        Whether anything changed. lastTransitionTime moves only when `status` does.

    Raises:
        ValueError: Type, status or reason are not what the API takes, or `now` has no time zone.
    """
    _check(type, status, reason)
    message = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
    moment = None if now is None else to_second(now)
    existing = find_condition(conditions, type)
    if existing is None:
        added = Condition(
            type=type,
            status=status,
            reason=reason,
            message=message,
            lastTransitionTime=moment or to_second(clock.now()),
            observedGeneration=observed_generation,
        )
        conditions.append(added)
        note_condition(conditions, added)
        return True
    changed = False
    if existing.status != status:
        existing.status = status
        existing.lastTransitionTime = moment or to_second(clock.now())
        changed = True
    if existing.reason != reason:
        existing.reason = reason
        changed = True
    if existing.message != message:
        existing.message = message
        changed = True
    if observed_generation is not None and existing.observedGeneration != observed_generation:
        existing.observedGeneration = observed_generation
        changed = True
    note_condition(conditions, existing)
    return changed
