"""What is wrong with a state graph, all of it at once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from opsdk.models.families import is_custom_resource
from opsdk.protocols import MachineObject, Reconciler
from opsdk.statemachine._texts import callable_fault, clipped, kind_text, quoted, type_fault
from opsdk.statemachine.handler import StateCondition, StateEvent, StateHandler, States, Transition

__all__ = ["graph_faults", "plain", "status_faults"]

CR = TypeVar("CR", bound=MachineObject)
S = TypeVar("S", bound=str)

_LONGEST_MESSAGE: Final = 32_768  # metav1.Condition's
_STATUSES = ("True", "False", "Unknown")
_EVENT_TYPES = ("Normal", "Warning")
_NAMES: Final = "a text or a member of a StrEnum"
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
        from opsdk.models import NoStatus  # loaded where a CustomResource is

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
    if fault := type_fault(states, Mapping, "a dict of StateHandlers by the names of the states"):
        yield f"states: {fault}"
    else:
        yield from _states_faults(initial, states, deletion_state)
    if fault := type_fault(max_history, int, "a whole number"):
        yield f"max_history: {fault}"
    elif max_history < 1:
        yield f"max_history: {max_history} is below 1; the last transition is always kept"
    if (finalizer is None) != (deletion_state is None):
        given, lacking = ("finalizer", "deletion_state") if deletion_state is None else ("deletion_state", "finalizer")
        yield f"{lacking}: is needed because {given} is given; give both or neither"
    if finalizer is not None and (fault := _finalizer_fault(finalizer)):
        yield f"finalizer: {fault}"


def _states_faults(initial: S, states: States[CR, S], deletion_state: S | None) -> Iterator[str]:
    if not states:
        yield "states: there are none; declare at least the initial one"
    if fault := _name_fault(initial, states):
        yield f"initial: {fault}"
    for name, handler in states.items():
        if fault := type_fault(name, str, _NAMES):
            yield f"states: {fault}"
        elif not name:
            yield "states: a state has an empty name, which means 'no state yet'"
        if fault := type_fault(handler, StateHandler, "a StateHandler"):
            yield f"state {quoted(name)}: {fault}"
            continue
        for fault in _handler_faults(handler, states):
            yield f"state {quoted(name)}: {fault}"
    if deletion_state is not None and (fault := _name_fault(deletion_state, states)):
        yield f"deletion_state: {fault}"


def _name_fault(name: S, states: States[CR, S]) -> str:
    """What is wrong with what should be the name of a state; empty: nothing."""
    if fault := type_fault(name, str, _NAMES):
        return fault
    return "" if name in states else f"{quoted(name)} is not one of the states ({_known(states)})"


def _finalizer_fault(finalizer: str) -> str:
    if fault := type_fault(finalizer, str, "a text of the form domain/name"):
        return fault
    if not (_QUALIFIED.fullmatch(finalizer) and "/" in finalizer):
        return f"{quoted(finalizer)} is not of the form domain/name"
    return ""


def _handler_faults(handler: StateHandler[CR, S], states: States[CR, S]) -> Iterator[str]:
    if fault := _list_fault(handler.conditions):
        yield f"conditions: {fault}"
    else:
        yield from _conditions_faults(handler.conditions)
    for field, event in (("event", handler.event), ("failure_event", handler.failure_event)):
        if event is None:
            continue
        if fault := type_fault(event, StateEvent, "a StateEvent"):
            yield f"{field}: {fault}"
            continue
        for fault in _event_faults(event):
            yield f"{field}.{fault}"
    for field, hook in (("enter", handler.enter), ("reconcile", handler.reconcile)):
        if hook is not None and not isinstance(hook, Reconciler) and (fault := callable_fault(hook)):
            yield f"{field}: {fault}" + (", or an object with a method reconcile" if field == "reconcile" else "")
    if fault := _list_fault(handler.transitions):
        yield f"transitions: {fault}"
    else:
        for index, transition in enumerate(handler.transitions):
            if fault := type_fault(transition, Transition, "a Transition"):
                yield f"transitions[{index}]: {fault}"
                continue
            for fault in _transition_faults(transition, states):
                yield f"transitions[{index}]{fault}"
    if handler.timeout is not None:
        if fault := type_fault(handler.timeout, timedelta, "a timedelta"):
            yield f"timeout: {fault}"
        elif handler.timeout <= timedelta(0):
            yield f"timeout: {handler.timeout} leaves the hooks no time"


def _list_fault(entries: object) -> str:
    fault = type_fault(entries, Sequence, "a list of them")
    return fault or (f"{kind_text(entries)}; give a list of them" if isinstance(entries, str) else "")


def _transition_faults(transition: Transition[CR, S], states: States[CR, S]) -> Iterator[str]:
    if fault := _name_fault(transition.to, states):
        yield f".to: {fault}"
    if transition.when is None and transition.after is None:
        yield ": has neither `when` nor `after`, so it would be taken at once"
    if transition.when is not None and (fault := callable_fault(transition.when)):
        yield f".when: {fault}"
    if transition.after is not None:
        if fault := type_fault(transition.after, timedelta, "a timedelta"):
            yield f".after: {fault}"
        elif transition.after < timedelta(0):
            yield f".after: {transition.after} is negative"
    if fault := type_fault(transition.reason, str, "a text"):
        yield f".reason: {fault}"


def _conditions_faults(conditions: Sequence[StateCondition]) -> Iterator[str]:
    seen: list[str] = []
    for index, condition in enumerate(conditions):
        if fault := type_fault(condition, StateCondition, "a StateCondition"):
            yield f"conditions[{index}]: {fault}"
            continue
        for fault in _condition_faults(condition):
            yield f"conditions[{index}].{fault}"
        if condition.type and condition.type in seen:
            yield f"conditions[{index}].type: {quoted(condition.type)} is listed twice"
        seen.append(condition.type)


def _condition_faults(condition: StateCondition) -> Iterator[str]:
    if fault := type_fault(condition.type, str, "a text"):
        yield f"type: {fault}"
    elif not condition.type:
        yield "type: is empty"
    elif not _QUALIFIED.fullmatch(condition.type):
        yield f"type: {quoted(condition.type)} is not a condition type (CamelCase, or domain/CamelCase)"
    if condition.status not in _STATUSES:
        yield f"status: {quoted(condition.status)} is none of {', '.join(map(repr, _STATUSES))}"
    if fault := _reason_fault(condition):
        yield f"reason: {fault}"
    if fault := type_fault(condition.message, str, "a text"):
        yield f"message: {fault}"
    elif len(condition.message) > _LONGEST_MESSAGE:
        yield f"message: has {len(condition.message)} characters, more than {_LONGEST_MESSAGE}"


def _event_faults(event: StateEvent) -> Iterator[str]:
    if fault := _reason_fault(event):
        yield f"reason: {fault}"
    if fault := type_fault(event.message, str, "a text"):
        yield f"message: {fault}"
    if event.type not in _EVENT_TYPES:
        yield f"type: {quoted(event.type)} is none of {', '.join(map(repr, _EVENT_TYPES))}"


def _reason_fault(subject: StateCondition | StateEvent) -> str:
    if fault := type_fault(subject.reason, str, "a text"):
        return fault
    if not subject.reason:
        return "is empty"
    if not _REASON.fullmatch(subject.reason):
        return f"{quoted(subject.reason)} is not one CamelCase word"
    return ""


def _known(states: States[CR, S]) -> str:
    return clipped(", ".join(_texts(states)) or "none")


def _texts(names: Iterable[object]) -> Iterator[str]:
    for name in names:
        yield str.__str__(name) if isinstance(name, str) else repr(name)
