"""A reconciler that is a state graph.

The state of an object lives in its status, with a history of how it got there. One call of `StateMachine.reconcile` is
one pass over one object.

Guarantees: a pass does exactly one thing: it enters a state, or runs the `reconcile` hook of the state that the object
is in. A transition and everything that belongs to it is one status write, conditional on nobody else having written
the object since it was read; so of two machines that race for one object, one takes the transition and the other one
looks again.
Not promised: that `enter` runs only once. It runs until it has succeeded and the status write after it has, too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Generic, final

import anyio
from typing_extensions import TypeVar

from opsdk import clock
from opsdk.errors import InvalidStateMachineError, ResourceDefinitionError
from opsdk.events import Recorder
from opsdk.models import ResourceInfo, resource_of
from opsdk.protocols import Client, EventRecorder, MachineObject
from opsdk.statemachine._calls import is_panic
from opsdk.statemachine._explain import explain, predicate_name
from opsdk.statemachine._faults import graph_faults, plain, status_faults
from opsdk.statemachine._memory import Memory
from opsdk.statemachine._pass import GoneInPassError, Pass, Setup, SupersededInPassError, memory_key
from opsdk.statemachine._warnings import graph_warnings
from opsdk.statemachine.coverage import Coverage
from opsdk.statemachine.explanation import Explanation
from opsdk.statemachine.graph import Edge, Graph
from opsdk.statemachine.handler import StateHandler, States, Transition
from opsdk.statemachine.observer import MachineObserver, Observers, PassResult
from opsdk.types import Result

__all__ = ["StateMachine"]

CR = TypeVar("CR", bound=MachineObject)
S = TypeVar("S", bound=str, default=str)

_CONFLICT_DELAY: Final = timedelta(milliseconds=50)
_CONFLICT_DELAY_LIMIT: Final = timedelta(seconds=5)

_logger = logging.getLogger("opsdk.statemachine")


@final
class StateMachine(Generic[CR]):
    """Drives objects of one kind through a graph of states.

    It is no `Reconciler` by itself: call `reconcile` from your own, with the object that you have read.

    Args:
        kind: The class of the objects.
        client: Reads and writes them.
        initial: The state of an object that has none yet.
        states: The graph.
        max_history: How many transitions status keeps, at least 1; the oldest go first. Default: 10.
        event_recorder: Who records events. Default: one of the machine's own, that writes through `client`.
        finalizer: Keeps a deleted object until `deletion_state` has finished. The machine adds it before the first
            entry and removes it at the end.
        deletion_state: Where an object goes when it is being deleted, from any other state, and before anything else
            is done. It has finished when its `enter` has succeeded and its `reconcile`, if it has one, asks for no
            requeue. Its transitions are not taken meanwhile. Give it together with `finalizer`, or neither.

    Raises:
        InvalidStateMachineError: The graph or an option is wrong; the error lists everything that is.
    """

    def __init__(
        self,
        kind: type[CR],
        client: Client,
        initial: S,
        states: States[CR, S],
        *,
        max_history: int = 10,
        event_recorder: EventRecorder | None = None,
        finalizer: str | None = None,
        deletion_state: S | None = None,
    ) -> None:
        faults = list(
            graph_faults(initial, states, max_history=max_history, finalizer=finalizer, deletion_state=deletion_state)
        )
        info: ResourceInfo | None = None
        try:
            info = resource_of(kind)
        except ResourceDefinitionError as error:
            faults.append(f"kind: {error}")
        if not callable(getattr(kind, "get_machine_status", None)):
            faults.append(f"kind: {kind.__name__} has no method get_machine_status()")
        faults += status_faults(kind)
        if faults or info is None:
            raise InvalidStateMachineError(kind.__name__ if info is None else info.kind, faults)

        self._kind = kind
        self._info = info
        self._client = client
        self._initial = plain(initial)
        self._states: dict[str, StateHandler[CR]] = {plain(name): _plain(handler) for name, handler in states.items()}
        self._max_history = max_history
        self._finalizer = finalizer
        self._deletion_state = None if deletion_state is None else plain(deletion_state)
        self._given_recorder = event_recorder
        self._recorder = event_recorder
        self._observers = Observers()
        self._memory = Memory()

    @property
    def kind(self) -> type[CR]:
        """The class of the objects."""
        return self._kind

    @property
    def client(self) -> Client:
        """The client that the machine works with, for whatever the machine does not do."""
        return self._client

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states, in the order of their declaration."""
        return tuple(self._states)

    def observe(self, observer: MachineObserver, /) -> None:
        """Tell `observer` from now on what the machine does, beside those that are told already."""
        self._observers.add(observer)

    def use_recorder(self, recorder: EventRecorder, /) -> None:
        """Record events through `recorder`, unless one was given at construction."""
        if self._given_recorder is None:
            self._recorder = recorder

    async def reconcile(self, cr: CR, /) -> Result:
        """Run one pass for the object in hand, which is changed in place as the stored one changes.

        Returns:
            When to look again: at once after a transition; otherwise the sooner of what the hooks asked for and the
            next `after`. A conflict on a write of the machine's own is a result too: the pass has not happened, and
            is asked for again. So is an object that is gone: there is nothing to do.

        Raises:
            UnknownStateError: Status names a state that the graph does not have.
            InvalidStateMachineError: The kind has no status subresource on the server.
            ObjectError: Status is not kept: `get_machine_status` returned a copy, or the CRD's schema lacks a field.
            Exception: What a hook or a condition raised.
        """
        started = anyio.current_time()
        try:
            result = await self._pass(cr)
        except Exception as error:
            if is_panic(error):
                self._observers.panic()
            self._observers.pass_finished("error", anyio.current_time() - started)
            raise
        self._observers.pass_finished(_label(result), anyio.current_time() - started)
        return result

    async def _pass(self, cr: CR) -> Result:
        key, state = memory_key(cr), cr.get_machine_status().state
        try:
            result = await Pass(self._setup(), cr).run()
        except SupersededInPassError as superseded:
            _logger.debug("%s: written by somebody else meanwhile; looking again (%s)", key, superseded.__cause__)
            entry = self._memory.of(key, state)
            entry.conflicts += 1
            return Result(requeue_after=_conflict_delay(entry.conflicts))
        except GoneInPassError:
            _logger.debug("%s: gone meanwhile", key)
            self._memory.forget(key)
            return Result()
        if (known := self._memory.peek(key, state)) is not None:
            known.conflicts = 0
        return result

    def _setup(self) -> Setup[CR]:
        if self._recorder is None:
            self._recorder = Recorder(self._client, component="opsdk")
        return Setup(
            info=self._info,
            client=self._client,
            initial=self._initial,
            states=self._states,
            max_history=self._max_history,
            finalizer=self._finalizer,
            deletion_state=self._deletion_state,
            recorder=self._recorder,
            observer=self._observers,
            memory=self._memory,
        )

    async def explain(self, cr: CR, /) -> Explanation:
        """Where the object is, since when, and what it waits for. Asks the conditions, runs no hook, writes nothing."""
        return await explain(self._setup(), cr, clock.now())

    def check(self) -> tuple[str, ...]:
        """What is allowed in the graph and still looks like a mistake; empty when nothing does."""
        return tuple(
            graph_warnings(
                self._initial,
                {name: frozenset(edge.to for edge in handler.transitions) for name, handler in self._states.items()},
                terminal=self._terminal(),
                deletion_state=self._deletion_state,
            )
        )

    def graph(self, *, coverage: Coverage | None = None, live: Mapping[str, int] | None = None) -> Graph:
        """The graph as a picture, in Mermaid and in DOT.

        Args:
            coverage: Laid over it: which transitions were taken, in tests for example. Default: nothing.
            live: Laid over it: how many objects are in each state now; for example what the census of a manager's
                metrics says (`manager.metrics.census(kind).totals().by_state`). Default: nothing.
        """
        return Graph(
            initial=self._initial,
            states=self.states,
            terminal=self._terminal(),
            edges=tuple(
                Edge(source=name, target=transition.to, label=_edge_label(transition), reason=transition.reason)
                for name, handler in self._states.items()
                for transition in handler.transitions
            ),
            deletion_state=self._deletion_state,
            coverage=None if coverage is None else Coverage(coverage.fired),
            live=None if live is None else dict(live),
        )

    def _terminal(self) -> frozenset[str]:
        return frozenset(name for name, handler in self._states.items() if handler.terminal)


def _plain(handler: StateHandler[CR, S]) -> StateHandler[CR]:
    """The handler with the names of states as plain texts, as they are in status, metrics and logs."""
    return StateHandler(
        conditions=handler.conditions,
        event=handler.event,
        failure_event=handler.failure_event,
        enter=handler.enter,
        reconcile=handler.reconcile,
        transitions=[
            Transition(to=plain(each.to), when=each.when, after=each.after, reason=each.reason)
            for each in handler.transitions
        ],
        timeout=handler.timeout,
        terminal=handler.terminal,
    )


def _label(result: Result) -> PassResult:
    if result.requeue_after is None:
        return "success"
    return "requeue_after" if result.requeue_after else "requeue"


def _conflict_delay(count: int) -> timedelta:
    """At once the first time; then ever later, for a cache that has to catch up first."""
    if count == 1:
        return timedelta(0)
    return min(_CONFLICT_DELAY * (1 << min(count - 2, 10)), _CONFLICT_DELAY_LIMIT)


def _edge_label(transition: Transition[CR]) -> str:
    parts = [transition.reason] if transition.reason else []
    if transition.when is not None and not transition.reason and (name := predicate_name(transition.when)):
        parts.append(name)
    if transition.after is not None:
        parts.append(f"after {transition.after}")
    return ", ".join(parts)
