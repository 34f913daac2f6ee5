"""Finds a `NotReadyError` in what a hook raised."""

from __future__ import annotations

from typing import cast

from opsdk.errors import NotReadyError

__all__ = ["find_not_ready"]


def find_not_ready(error: BaseException) -> NotReadyError | None:
    """The `NotReadyError` that `error` is, was raised from, or consists of.

    Of an exception group every member has to be, or to be raised from, a `NotReadyError`: one that is not is a failure
    that has to be retried. The first one found speaks for the group.
    """
    return _find(error, set())


def _find(error: BaseException | None, seen: set[int]) -> NotReadyError | None:
    if error is None or id(error) in seen:
        return None
    seen.add(id(error))
    if isinstance(error, NotReadyError):
        return error
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        found = [_find(inner, seen) for inner in group.exceptions]
        if all(found):
            return found[0]
    return _find(error.__cause__, seen)
