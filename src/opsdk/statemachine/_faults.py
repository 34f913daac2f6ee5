"""What is wrong with a state graph, all of it at once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from opsdk.models import NoStatus
from opsdk.models.custom_resource import is_custom_resource
from opsdk.protocols import MachineObject
from opsdk.statemachine.handler import StateCondition, StateEvent, StateHandler, States

__all__ = ["graph_faults", "plain", "status_faults"]

CR = TypeVar("CR", bound=MachineObject)
S = TypeVar("S", bound=str)

_LONGEST_MESSAGE: Final = 32_768  # metav1.Condition's
_STATUSES = ("True", "False", "Unknown")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
_SEGMENT = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_QUALIFIED = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_SEGMENT}")


def plain(name: str) -> str:
    """A state's name as a plain text, whichever enum it is a member of."""
    return str.__str__(name)


def status_faults(kind: type[MachineObject]) -> Iterator[str]:
    """Whether a class says that its kind has no status, and so no status subresource.

    Whether the kind has one on the server shows at the first write.
    """
    if is_custom_resource(kind):
        status: object = kind.model_fields["status"].annotation
        lacks = inspect.isclass(status) and issubclass(status, NoStatus)
    elif issubclass(kind, msgspec.Struct):
        lacks = all(field.name != "status" for field in msgspec.structs.fields(kind))
    else:
        lacks = False
    if lacks:
        yield (
            f"kind: {kind.__name__} has no status, so its kind has no status subresource, where a machine keeps its "
            "state; give it one that is, or contains, a MachineStatus"
        )


def graph_faults(
    initial: S,
    states: States[CR, S],
    *,
    max_history: int,
    finalizer: str | None,
    deletion_state: S | None,
) -> Iterator[str]:
    """Each fault of the graph and of the options, with the state and field it is in."""
    if not states:
        yield "states: there are none; declare at least the initial one"
    if initial not in states:
        yield f"initial: {plain(initial)!r} is not one of the states ({_known(states)})"
    for name, handler in states.items():
        if not name:
            yield "states: a state has an empty name, which means 'no state yet'"
        for fault in _handler_faults(handler, states):
            yield f"state {plain(name)!r}: {fault}"
    if max_history < 1:
        yield f"max_history: {max_history} is below 1; the last transition is always kept"
    if (finalizer is None) != (deletion_state is None):
        given, lacking = ("finalizer", "deletion_state") if deletion_state is None else ("deletion_state", "finalizer")
        yield f"{lacking}: is needed because {given} is given; give both or neither"
    if finalizer is not None and not (_QUALIFIED.fullmatch(finalizer) and "/" in finalizer):
        yield f"finalizer: {finalizer!r} is not of the form domain/name"
    if deletion_state is not None and deletion_state not in states:
        yield f"deletion_state: {plain(deletion_state)!r} is not one of the states ({_known(states)})"


def _handler_faults(handler: StateHandler[CR, S], states: States[CR, S]) -> Iterator[str]:
    seen: set[str] = set()
    for index, condition in enumerate(handler.conditions):
        for fault in _condition_faults(condition):
            yield f"conditions[{index}].{fault}"
        if condition.type and condition.type in seen:
            yield f"conditions[{index}].type: {condition.type!r} is listed twice"
        seen.add(condition.type)
    for field, event in (("event", handler.event), ("failure_event", handler.failure_event)):
        if event is not None and (fault := _reason_fault(event)):
            yield f"{field}.reason: {fault}"
    for index, transition in enumerate(handler.transitions):
        place = f"transitions[{index}]"
        if transition.to not in states:
            yield f"{place}.to: {plain(transition.to)!r} is not one of the states ({_known(states)})"
        if transition.when is None and transition.after is None:
            yield f"{place}: has neither `when` nor `after`, so it would be taken at once"
        if transition.after is not None and transition.after < timedelta(0):
            yield f"{place}.after: {transition.after} is negative"
    if handler.timeout is not None and handler.timeout <= timedelta(0):
        yield f"timeout: {handler.timeout} leaves the hooks no time"


def _condition_faults(condition: StateCondition) -> Iterator[str]:
    if not condition.type:
        yield "type: is empty"
    elif not _QUALIFIED.fullmatch(condition.type):
        yield f"type: {condition.type!r} is not a condition type (CamelCase, or domain/CamelCase)"
    if condition.status not in _STATUSES:
        yield f"status: {condition.status!r} is none of {', '.join(_STATUSES)}"
    if fault := _reason_fault(condition):
        yield f"reason: {fault}"
    if len(condition.message) > _LONGEST_MESSAGE:
        yield f"message: has {len(condition.message)} characters, more than {_LONGEST_MESSAGE}"


def _reason_fault(subject: StateCondition | StateEvent) -> str:
    if not subject.reason:
        return "is empty"
    if not _REASON.fullmatch(subject.reason):
        return f"{subject.reason!r} is not one CamelCase word"
    return ""


def _known(states: States[CR, S]) -> str:
    return ", ".join(plain(name) for name in states) or "none"
