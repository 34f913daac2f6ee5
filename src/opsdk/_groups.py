"""Exceptions in groups, seen without the groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn, cast

__all__ = ["leaves", "raise_bare", "unwrap"]


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in nested groups, or the one that is no group."""
    inside = _inside(error)
    if not inside:
        yield error
    for inner in inside:
        yield from leaves(inner)


def unwrap(error: BaseException) -> BaseException:
    """The one exception in nested groups of one, or the group that really holds several."""
    while len(inside := _inside(error)) == 1:
        error = inside[0]
    return error


def raise_bare(error: BaseException) -> NoReturn:
    """Raise `error` without the groups around it that hold nothing else. Keeps its cause and context."""
    error = unwrap(error)
    cause, context, suppressed = error.__cause__, error.__context__, error.__suppress_context__
    try:
        raise error
    finally:  # raising from an except block would make the group its context
        error.__cause__, error.__context__, error.__suppress_context__ = cause, context, suppressed


def _inside(error: BaseException) -> tuple[BaseException, ...]:
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).exceptions
    return ()
