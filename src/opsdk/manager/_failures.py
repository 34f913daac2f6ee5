"""What a manager raises at its end when runnables failed."""

from __future__ import annotations

from collections.abc import Sequence

from opsdk._groups import raise_bare, unwrap
from opsdk.errors import LeadershipLostError

__all__ = ["raise_failures"]


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
