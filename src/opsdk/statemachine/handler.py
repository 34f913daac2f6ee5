"""What an author declares: states, their hooks, and the transitions between them.

All of it is plain, frozen data. It is checked as a whole when a `StateMachine` is constructed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeAlias, final

from typing_extensions import TypeAliasType, TypeVar

from opsdk.protocols import EventType, MachineObject, Reconciler
from opsdk.types import ConditionStatus, Result

__all__ = ["Hook", "Predicate", "StateCondition", "StateEvent", "StateHandler", "States", "Transition"]

CR = TypeVar("CR", bound=MachineObject)
S = TypeVar("S", bound=str, default=str)
CR_contra = TypeVar("CR_contra", bound=MachineObject, contravariant=True)
S_co = TypeVar("S_co", bound=str, default=str, covariant=True)

Hook: TypeAlias = Callable[[CR], Result | Awaitable[Result | None] | None]
"""Called with the object in hand; sync or async. None is the same as `Result()`. A sync hook must not block."""

Predicate: TypeAlias = Callable[[CR], bool | Awaitable[bool]]
"""Asked about the object in hand; sync or async. Must not change the object."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StateCondition:
    """One condition that is set when a state has been entered.

    Args:
        type: For example `Ready`.
        status: True, False or Unknown, as the API spells them.
        reason: One CamelCase word that says why; required by the API.
        message: Text for people. Default: empty.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StateEvent:
    """An event about a state.

    Args:
        reason: One CamelCase word; required by the API.
        message: Text for people. Default: empty.
        type: Normal or Warning, for example when the state entered is one of failure. Default: Normal.
    """

    reason: str
    message: str = ""
    type: EventType = "Normal"


@final
@dataclass(frozen=True, kw_only=True)  # no slots: `X[Widget](...)` would fail on Python 3.11
class Transition(Generic[CR_contra, S_co]):
    """One way out of a state. The first of a state's transitions whose condition holds is taken.

    Args:
        to: The state it leads to.
        when: The condition. What it raises is the pass's error, and no transition is taken.
        after: How long the object must have been in the state. With `when` given, both must hold. The machine
            schedules the pass at which the time is up.
        reason: Recorded in the state history. Default: empty.
    """

    to: S_co
    when: Predicate[CR_contra] | None = None
    after: timedelta | None = None
    reason: str = ""


@final
@dataclass(frozen=True, kw_only=True)  # no slots: `X[Widget](...)` would fail on Python 3.11
class StateHandler(Generic[CR_contra, S_co]):
    """What happens in one state. Everything is optional.

    What hooks change in status is written after them, except for `state`, `stateHistory` and `pendingEntry`: those are
    the machine's, and a hook that changes them has failed. What hooks change in spec or metadata of the object in hand
    is not written: patch it through the client.

    Args:
        conditions: Set when the state has been entered. Types that are not listed stay as they are.
        event: Sent when the state has been entered.
        failure_event: Sent, always as a Warning event, when a hook fails, instead of the default one
            (`opsdk: <enter|reconcile> hook for state "x" failed: …`, which also stands for an empty message).
        enter: Called when the state is entered. It is called again, pass after pass, until it has succeeded once, so
            it must be idempotent. It sees the new state in status.
        reconcile: Called on each pass that takes no transition; a hook, or a `Reconciler`, which gets the request.
        transitions: The ways out, in order of precedence.
        timeout: How long one run of an async hook may take; then it is cancelled, and has failed with a
            `ReconcileTimeoutError`. Default: no limit.
        terminal: The object is meant to stay here; silences the warning of `StateMachine.check`.
    """

    conditions: Sequence[StateCondition] = ()
    event: StateEvent | None = None
    failure_event: StateEvent | None = None
    enter: Hook[CR_contra] | None = None
    reconcile: Hook[CR_contra] | Reconciler | None = None
    transitions: Sequence[Transition[CR_contra, S_co]] = ()
    timeout: timedelta | None = None
    terminal: bool = False


States = TypeAliasType("States", Mapping[S, StateHandler[CR, S]], type_params=(CR, S))
"""The whole graph: state names, and what happens in each.

`States[Widget]` has names that are str, `States[Widget, Phase]` the members of the `StrEnum` Phase.
"""
