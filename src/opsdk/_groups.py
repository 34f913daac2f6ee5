"""Exceptions in groups, seen without the groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn, cast

import anyio

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
    """Raise `error` without the groups around it that hold nothing else. Keeps its cause and context.

    Cancellations beside a failure are left out, as they are on asyncio anyhow: on trio they would hide that it is one.
    """
    error = unwrap(_without_cancellations(error))
    cause, context, suppressed = error.__cause__, error.__context__, error.__suppress_context__
    try:
        raise error
    finally:  # raising from an except block would make the group its context
        error.__cause__, error.__context__, error.__suppress_context__ = cause, context, suppressed


def _without_cancellations(error: BaseException) -> BaseException:
    try:
        cancelled = anyio.get_cancelled_exc_class()
    except RuntimeError:  # no loop, no cancellations
        return error
    everything = list(leaves(error))
    failures = [leaf for leaf in everything if not isinstance(leaf, cancelled)]
    if not failures or len(failures) == len(everything):
        return error
    return failures[0] if len(failures) == 1 else BaseExceptionGroup("several failed", failures)


def _inside(error: BaseException) -> tuple[BaseException, ...]:
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).exceptions
    return ()
