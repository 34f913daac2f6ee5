"""Says why an object is where it is, without touching it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from opsdk.client.finalizers import has_finalizer
from opsdk.models import view_of
from opsdk.protocols import MachineObject
from opsdk.statemachine._calls import ask
from opsdk.statemachine._pass import Setup, memory_key, since, time_left
from opsdk.statemachine.explanation import Explanation, TransitionExplanation
from opsdk.statemachine.handler import StateHandler, Transition

__all__ = ["explain", "predicate_name"]

CR = TypeVar("CR", bound=MachineObject)


async def explain(setup: Setup[CR], cr: CR, now: datetime) -> Explanation:
    """Explain the object in hand."""
    view = cr.get_machine_status()
    handler = setup.states.get(view.state)
    key = memory_key(cr)
    start = since(view, setup.memory, key)
    seen = setup.memory.peek(key, view.state)
    counted = start or (seen.seen if seen is not None else None) or now
    transitions: tuple[TransitionExplanation, ...] = ()
    if handler is not None:
        transitions = tuple([await _transition(entry, cr, counted, now) for entry in handler.transitions])
    deleting = view_of(cr).deletionTimestamp is not None
    return Explanation(
        state=view.state,
        known=handler is not None,
        since=start,
        pending_entry=view.pending_entry,
        deleting=deleting,
        transitions=transitions,
        waits_for=_waits_for(setup, cr, handler, transitions, deleting=deleting),
    )


async def _transition(transition: Transition[CR], cr: CR, start: datetime, now: datetime) -> TransitionExplanation:
    holds: bool | None = None
    trouble = ""
    if transition.when is not None:
        try:
            holds = await ask(transition.when, cr)
        except Exception as error:  # noqa: BLE001 - it is what there is to tell
            trouble = f"{type(error).__name__}: {error}"
    return TransitionExplanation(
        to=transition.to,
        reason=transition.reason,
        holds=holds,
        remaining=None if transition.after is None else time_left(transition, start, now),
        error=trouble,
    )


def _waits_for(
    setup: Setup[CR],
    cr: CR,
    handler: StateHandler[CR] | None,
    transitions: tuple[TransitionExplanation, ...],
    *,
    deleting: bool,
) -> str:
    view = cr.get_machine_status()
    if deleting and setup.finalizer is not None:
        if not has_finalizer(cr, setup.finalizer):
            return "being deleted; this machine has let go of it"
        if view.state != setup.deletion_state:
            return f"being deleted; the next pass enters {setup.deletion_state!r}"
        return "pass again: its enter hook has yet to succeed" if view.pending_entry else "its reconcile to finish"
    if not view.state:
        return f"the first pass, which enters {setup.initial!r}"
    if handler is None:
        return f"somebody to set status.state to one of: {', '.join(setup.states)}"
    if view.pending_entry:
        return "another pass: its enter hook has yet to succeed"
    for transition in transitions:
        if transition.error and not transition.remaining:
            return f"the condition of the transition to {transition.to!r} to be answered without an error"
        if transition.ready:
            return f"the next pass, which goes to {transition.to!r}"
    if not transitions:
        return "nothing: no transition leaves it"
    return "a transition's condition or time: " + ", ".join(dict.fromkeys(repr(entry.to) for entry in transitions))


def predicate_name(predicate: Callable[..., object]) -> str:
    """A predicate's name, if it has one that says something."""
    name = getattr(predicate, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else ""
