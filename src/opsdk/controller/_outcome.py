"""What a reconcile's exception means for the object's next turn."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import final

import msgspec

from opsdk._groups import leaves
from opsdk.controller.metrics import ReconcileOutcome
from opsdk.errors import (
    ConflictError,
    DecodeError,
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
class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about an exception.

    Args:
        outcome: How it counts.
        retry: When to try again.
        quiet: It is part of normal life, so nobody needs to read about it.
        malformed: The object itself does not fit its model, so that any change of it may help.
    """

    outcome: ReconcileOutcome
    retry: Retry | timedelta
    quiet: bool = False
    malformed: bool = False


def is_about_the_missing(error: Exception, resource: ResourceInfo, request: Request) -> bool:
    """Whether all that went wrong is that the object itself was not found."""
    return all(
        isinstance(leaf, NotFoundError) and (leaf.kind, leaf.name) == (resource.plural, request.name)
        for leaf in leaves(error)
    )


def classify(error: Exception, resource: ResourceInfo, request: Request) -> Failure:
    """Precedence: `TerminalError` or that the object is malformed, `RetryError`, backoff.

    A group is terminal only if all of it is.
    """
    found = list(leaves(error))
    malformed = [leaf for leaf in found if _is_malformed(leaf, resource, request)]
    if all(isinstance(leaf, TerminalError) or leaf in malformed for leaf in found):
        return Failure(outcome="terminal_error", retry=Retry.NEVER, malformed=bool(malformed))
    outcome = _outcome(found)
    stated = [leaf.requeue_after for leaf in found if isinstance(leaf, RetryError)]
    if stated:
        return Failure(outcome=outcome, retry=min(stated))
    quiet = all(isinstance(leaf, ConflictError | LeadershipLostError) for leaf in found)
    return Failure(outcome=outcome, retry=Retry.BACKOFF, quiet=quiet)


def _is_malformed(error: BaseException, resource: ResourceInfo, request: Request) -> bool:
    """Whether the object itself does not fit its model. Of another object nobody may tell us when it has changed."""
    if not isinstance(error, DecodeError):
        return False
    return (error.kind, error.namespace, error.name) == (resource.kind, request.namespace, request.name)


def _outcome(found: list[BaseException]) -> ReconcileOutcome:
    if not all(isinstance(leaf, OpsdkError | OSError) for leaf in found):
        return "panic"
    if any(isinstance(leaf, ReconcileTimeoutError) for leaf in found):
        return "timeout"
    return "error"
