"""What a reconcile's exception means for the object's next turn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import final

from opsdk.controller._groups import leaves
from opsdk.controller.metrics import ReconcileOutcome
from opsdk.errors import (
    ConflictError,
    LeadershipLostError,
    NotFoundError,
    OpsdkError,
    ReconcileTimeoutError,
    RetryError,
    TerminalError,
)
from opsdk.models import ResourceInfo
from opsdk.types import Request

__all__ = ["Failure", "Retry", "classify", "is_about_the_missing"]


class Retry(Enum):
    """When to try again, unless a time is stated."""

    NEVER = "never"
    BACKOFF = "backoff"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What to do about an exception.

    Args:
        outcome: How it counts.
        retry: When to try again.
        quiet: It is part of normal life, so nobody needs to read about it.
    """

    outcome: ReconcileOutcome
    retry: Retry | timedelta
    quiet: bool = False


def is_about_the_missing(error: Exception, resource: ResourceInfo, request: Request) -> bool:
    """Whether all that went wrong is that the object itself was not found."""
    return all(
        isinstance(leaf, NotFoundError) and (leaf.kind, leaf.name) == (resource.plural, request.name)
        for leaf in leaves(error)
    )


def classify(error: Exception) -> Failure:
    """Precedence: `TerminalError`, `RetryError`, backoff. A group is terminal only if all of it is."""
    found = list(leaves(error))
    if all(isinstance(leaf, TerminalError) for leaf in found):
        return Failure(outcome="terminal_error", retry=Retry.NEVER)
    outcome = _outcome(found)
    stated = [leaf.requeue_after for leaf in found if isinstance(leaf, RetryError)]
    if stated:
        return Failure(outcome=outcome, retry=min(stated))
    quiet = all(isinstance(leaf, ConflictError | LeadershipLostError) for leaf in found)
    return Failure(outcome=outcome, retry=Retry.BACKOFF, quiet=quiet)


def _outcome(found: list[BaseException]) -> ReconcileOutcome:
    if not all(isinstance(leaf, OpsdkError | OSError) for leaf in found):
        return "panic"
    if any(isinstance(leaf, ReconcileTimeoutError) for leaf in found):
        return "timeout"
    return "error"
