"""Calls an author's hooks and predicates, sync or async, and checks what they return."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar, cast, final

import anyio

from opsdk.errors import OpsdkError, ReconcileTimeoutError
from opsdk.protocols import MachineObject, Reconciler
from opsdk.statemachine.handler import Hook, Predicate
from opsdk.types import Request, Result

__all__ = ["HookTimeoutError", "ask", "call_hook", "is_panic"]

CR = TypeVar("CR", bound=MachineObject)

_logger = logging.getLogger("opsdk.statemachine")


@final
class HookTimeoutError(ReconcileTimeoutError):
    """A hook ran past the timeout of its state and was cancelled."""

    def __init__(self, kind: str, request: str, timeout: timedelta, hook: str) -> None:
        super().__init__(kind, request, timeout)
        self.args = (f"{hook} ran longer than its timeout of {timeout.total_seconds():g} s",)


async def call_hook(
    hook: Hook[CR] | Reconciler, cr: CR, request: Request, *, limit: timedelta | None, kind: str, name: str
) -> Result:
    """Run a hook to its end.

    Args:
        hook: What to call: a hook gets the object, a `Reconciler` the request.
        cr: The object in hand.
        request: Its name.
        limit: How long an async hook may take.
        kind: The object's kind, for error texts.
        name: Which hook of which state, for error texts.

    Raises:
        HookTimeoutError: It took longer.
        TypeError: It returned neither a `Result` nor None.
    """
    outcome = hook.reconcile(request) if isinstance(hook, Reconciler) else hook(cr)
    if isinstance(outcome, Awaitable):
        outcome = await _in_time(outcome, limit, kind, request, name)
    return _checked(outcome, f"{kind} {name}")


async def _in_time(
    outcome: Awaitable[Result | None], limit: timedelta | None, kind: str, request: Request, name: str
) -> Result | None:
    if limit is None:
        return await outcome
    with anyio.move_on_after(limit.total_seconds()) as scope:
        answer = await outcome
        if anyio.current_time() >= scope.deadline:
            _logger.warning(
                "%s %s: %s ran on past its timeout of %g s: it caught its cancellation, or does not await anything",
                *(kind, request, name, limit.total_seconds()),
            )
        return answer
    raise HookTimeoutError(kind, str(request), limit, name)


def _checked(outcome: object, place: str) -> Result:
    if outcome is None:
        return Result()
    if not isinstance(outcome, Result):
        msg = f"{place}: a hook returned {type(outcome).__name__}; hooks return a Result or None"
        raise TypeError(msg)
    return outcome


async def ask(predicate: Predicate[CR], cr: CR) -> bool:
    """The predicate's answer."""
    answer = predicate(cr)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def is_panic(error: BaseException) -> bool:
    """Whether an exception looks like a mistake in the program rather than trouble in the world."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(is_panic, group.exceptions))
    return not isinstance(error, (OpsdkError, OSError))
