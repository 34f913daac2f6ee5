"""Checks of options that a type checker would have refused, and of those with which a test would test nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import cast

__all__ = ["count_faults", "duration_faults", "text_list_faults"]


def count_faults(name: str, value: object, *, least: int) -> list[str]:
    """What is wrong with a number, if anything.

    Args:
        name: The option.
        value: What was given.
        least: The smallest number that makes sense.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return []
    return [f"{name} is {value!r}; give an int of {least} or more"]


def duration_faults(name: str, value: object, *, zero: bool = False) -> list[str]:
    """What is wrong with a duration, if anything.

    Args:
        name: The option.
        value: What was given.
        zero: Whether it may be zero.
    """
    if isinstance(value, timedelta) and (value > timedelta(0) or (zero and not value)):
        return []
    return [f"{name} is {value!r}; give a timedelta {'that is not negative' if zero else 'over zero'}"]


def text_list_faults(name: str, value: object) -> list[str]:
    """What is wrong with a list of texts, if anything. A single text would be taken for a list of its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [f"{name} is {value!r}; give a list: {name}=[{value!r}]"]
    wrong = [item for item in cast("Iterable[object]", value) if not isinstance(item, str) or not item.strip()]
    return [f"{name} has {item!r}; give texts that are not empty" for item in wrong]
