"""What a public coroutine raises when tasks in it failed: the one cause bare, a group only for independent ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, cast

from opsdk.errors import LeadershipLostError

__all__ = ["raise_bare", "raise_failures", "unwrap"]


def unwrap(error: BaseException) -> BaseException:
    """The one exception in nested groups of one, or the group that really holds several."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if len(group.exceptions) != 1:
            return group
        error = group.exceptions[0]
    return error


def raise_bare(error: BaseException) -> NoReturn:
    """Raise `error` without the groups around it that hold nothing else. Keeps its cause and context."""
    error = unwrap(error)
    cause, context, suppressed = error.__cause__, error.__context__, error.__suppress_context__
    try:
        raise error
    finally:  # raising from an except block would make the group its context
        error.__cause__, error.__context__, error.__suppress_context__ = cause, context, suppressed


def raise_failures(message: str, failures: Sequence[Exception]) -> None:
    """Raise what independent runnables raised: nothing, the one, or a group.

    Whatever failed because leadership was lost is that one failure, and not others beside it.
    """
    causes = list(dict.fromkeys(failure for failure in map(unwrap, failures) if isinstance(failure, Exception)))
    lost = [cause for cause in causes if isinstance(cause, LeadershipLostError)]
    causes = [cause for cause in causes if cause not in lost[1:]]
    match causes:
        case []:
            return
        case [cause]:
            raise_bare(cause)
        case _:
            raise ExceptionGroup(message, causes)
