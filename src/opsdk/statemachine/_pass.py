"""One pass over one object."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, Literal, TypeAlias, TypeVar, final

import msgspec
from lightkube.models.meta_v1 import Condition

from opsdk import clock
from opsdk.client.finalizers import add_finalizers, has_finalizer, remove_finalizers
from opsdk.client.reach import uncached
from opsdk.errors import (
    ApiError,
    ApiStatusError,
    ConflictError,
    InvalidStateMachineError,
    NotFoundError,
    ObjectError,
    UnknownStateError,
)
from opsdk.models import ResourceInfo, request_of, view_of
from opsdk.models.status_pass import status_pass
from opsdk.protocols import Client, EventRecorder, EventType, MachineObject, MachineStatusView
from opsdk.statemachine._calls import HookTimeoutError, ask, call_hook
from opsdk.statemachine._memory import Memory
from opsdk.statemachine._status import StatusInHand
from opsdk.statemachine._texts import clipped
from opsdk.statemachine.handler import StateEvent, StateHandler, Transition
from opsdk.statemachine.observer import MachineObserver
from opsdk.types import Result

__all__ = ["GoneInPassError", "Pass", "Setup", "SupersededInPassError", "memory_key", "since", "time_left"]

CR = TypeVar("CR", bound=MachineObject)
T = TypeVar("T")

_NOW: Final = timedelta(0)
_DELETION_REASON: Final = "Deleted"

_Phase: TypeAlias = Literal["enter", "reconcile"]

_logger = logging.getLogger("opsdk.statemachine")


@final
class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A hook that raised, and the conditions that our helpers had set until then."""

    phase: _Phase
    error: Exception
    kept: tuple[Condition, ...]


class SupersededInPassError(Exception):
    """Somebody else has written the object since it was read: what the pass decided is void."""


class GoneInPassError(Exception):
    """The object does not exist any more: there is nothing left to do."""


@final
class Setup(msgspec.Struct, Generic[CR], frozen=True, kw_only=True):
    """What a pass needs of its machine."""

    info: ResourceInfo
    client: Client
    initial: str
    states: Mapping[str, StateHandler[CR]]
    max_history: int
    finalizer: str | None
    deletion_state: str | None
    recorder: EventRecorder
    observer: MachineObserver
    memory: Memory


def memory_key(cr: MachineObject) -> str:
    """By what an object is remembered."""
    return view_of(cr).uid or str(request_of(cr))


def since(view: MachineStatusView, memory: Memory, key: str) -> datetime | None:
    """When the object entered its state, by its history; None when the history ends in another state.

    The history has whole seconds. Where this process saw the entry it knows better, so that no timer is early.
    """
    last = view.state_history[-1] if view.state_history else None
    if last is None or last.to != view.state:
        return None
    entry = memory.peek(key, view.state)
    if entry is not None and entry.entered is not None and entry.entered.replace(microsecond=0) == last.timestamp:
        return entry.entered
    return last.timestamp


def time_left(transition: Transition[CR], start: datetime, now: datetime) -> timedelta:
    """How long the transition's `after` still has to run; zero when it is up, or when it has none.

    A start in the future, by a replica whose clock is ahead, makes nobody wait for longer than `after`.
    """
    return _NOW if transition.after is None else max(transition.after - max(now - start, _NOW), _NOW)


@final
class Pass(Generic[CR]):
    """Does the one thing that is next for the object in hand."""

    def __init__(self, setup: Setup[CR], cr: CR) -> None:
        view = view_of(cr)
        self._setup = setup
        self._cr = cr
        self._request = request_of(cr)
        self._key = memory_key(cr)
        self._generation = view.generation
        self._deleting = view.deletionTimestamp is not None
        self._where = f"{setup.info.kind} {self._request}"

    async def run(self) -> Result:
        """Do it.

        Raises:
            SupersededInPassError: The object in hand is not the newest; nothing was recorded.
            GoneInPassError: The object is gone.
        """
        finalizer = self._setup.finalizer
        if finalizer is not None:
            if self._deleting:
                return await self._delete(finalizer)
            if not has_finalizer(self._cr, finalizer):
                await self._own(add_finalizers(self._setup.client, self._cr, finalizer))
        status = StatusInHand(self._setup.client, self._cr)
        state = status.view.state
        if not state:
            return await self._enter(status, self._setup.initial)
        handler = self._setup.states.get(state)
        if handler is None:
            if self._deleting:
                _logger.info(
                    "%s is being deleted in the unknown state %r; nothing is done", self._where, clipped(state)
                )
                return Result()
            raise UnknownStateError(self._setup.info.kind, str(self._request), state, tuple(self._setup.states))
        if status.view.pending_entry:
            return await self._enter_again(status, state)
        now, start = self._timers(status.view)
        transition = await self._first(handler, start, now)
        if transition is not None:
            return await self._enter(status, transition.to, transition.reason)
        result = await self._reconcile(status, state, handler)
        return self._soonest(result, handler, start, state)

    async def _delete(self, finalizer: str) -> Result:
        """The way out: to the deletion state from any other, and when that has finished, let go."""
        if not has_finalizer(self._cr, finalizer):
            return Result()
        target = self._setup.deletion_state
        assert target is not None, "a machine with a finalizer has a deletion state"  # noqa: S101 - checked when built
        status = StatusInHand(self._setup.client, self._cr)
        if status.view.state != target:
            return await self._enter(status, target, _DELETION_REASON)
        if status.view.pending_entry:
            return await self._enter_again(status, target)
        result = await self._reconcile(status, target, self._setup.states[target])
        if result.requeue_after is not None:
            return self._remembered(result, target)
        await self._own(remove_finalizers(self._setup.client, self._cr, finalizer))
        self._setup.memory.forget(self._key)
        _logger.info("%s: %r has finished, the finalizer %s is gone", self._where, target, finalizer)
        return Result()

    async def _first(self, handler: StateHandler[CR], start: datetime, now: datetime) -> Transition[CR] | None:
        """The first transition whose time is up and whose condition holds."""
        for transition in handler.transitions:
            if time_left(transition, start, now):
                continue
            if transition.when is None or await ask(transition.when, self._cr):
                return transition
        return None

    async def _enter(self, status: StatusInHand[CR], to: str, reason: str = "") -> Result:
        """Take a transition: record it, run `enter` of its target, write it all at once."""
        now = clock.now()
        view = status.view
        from_, start = view.state, since(view, self._setup.memory, self._key)
        dwell = (now - start).total_seconds() if start is not None and from_ else None
        status.record(to, reason=reason, at=now, keep=self._setup.max_history)
        handler = self._setup.states[to]
        outcome = await self._hook(status, "enter", to, handler)
        if isinstance(outcome, _Failure):
            status.restore()
            status.record(to, reason=reason, at=now, keep=self._setup.max_history)
            status.keep(outcome.kept)
            if await self._store_failure(status, outcome):
                self._transitioned(from_, to, reason, dwell, now)
            await self._warn(outcome, to, handler)
            raise outcome.error
        await self._entered(status, to, handler, outcome)
        self._transitioned(from_, to, reason, dwell, now)
        await self._announce(handler)
        return Result(requeue_after=_NOW)

    async def _enter_again(self, status: StatusInHand[CR], state: str) -> Result:
        """Run `enter` of a state that is recorded, but whose `enter` has not succeeded yet."""
        handler = self._setup.states[state]
        outcome = await self._hook(status, "enter", state, handler)
        if isinstance(outcome, _Failure):
            status.restore()
            status.keep(outcome.kept)
            await self._store_failure(status, outcome)
            await self._warn(outcome, state, handler)
            raise outcome.error
        await self._entered(status, state, handler, outcome)
        _logger.info("%s: enter of state %r has succeeded at last", self._where, state)
        await self._announce(handler)
        return Result(requeue_after=_NOW)

    async def _reconcile(self, status: StatusInHand[CR], state: str, handler: StateHandler[CR]) -> Result:
        """Run the state's `reconcile`, and write what it changed in status."""
        outcome = await self._hook(status, "reconcile", state, handler)
        if isinstance(outcome, _Failure):
            status.restore()
            status.keep(outcome.kept)
            await self._store_failure(status, outcome)
            await self._warn(outcome, state, handler)
            raise outcome.error
        status.observed(self._generation, handler.conditions)
        await self._own(status.write())
        return outcome

    async def _hook(
        self, status: StatusInHand[CR], phase: _Phase, state: str, handler: StateHandler[CR]
    ) -> Result | _Failure:
        hook = handler.enter if phase == "enter" else handler.reconcile
        if hook is None:
            return Result()
        kind, name = self._setup.info.kind, f'{phase} hook of state "{clipped(state)}"'
        machines_own = status.machines_own()
        with status_pass(status.view.conditions) as current:
            try:
                result = await call_hook(hook, self._cr, self._request, limit=handler.timeout, kind=kind, name=name)
                if fault := machines_own.fault(status.machines_own()):
                    raise ObjectError(f"{self._where}: states are entered by transitions; the {name} {fault}")  # noqa: TRY301 - a failure of the hook
                return result
            except Exception as error:  # noqa: BLE001 - recorded, announced and raised again by the caller
                return _Failure(phase=phase, error=error, kept=tuple(current.kept.values()))

    async def _entered(self, status: StatusInHand[CR], state: str, handler: StateHandler[CR], result: Result) -> None:
        now = clock.now()
        status.entered(handler.conditions, generation=self._generation, at=now)
        await self._own(status.write())
        entry = self._setup.memory.of(self._key, state)
        entry.due = _later(now, result.requeue_after) if result.requeue_after else None

    async def _store_failure(self, status: StatusInHand[CR], failure: _Failure) -> bool:
        """Write what stays in status of a failed pass, and say whether that succeeded.

        The hook's error is the news, not what the write meets.
        """
        if self._is_stale(failure.error):
            raise SupersededInPassError from failure.error
        try:
            await status.write()
        except ConflictError as error:
            raise SupersededInPassError from error
        except NotFoundError as error:
            await self._look_for(error)
            failure.error.add_note(f"and its status could not be written: {error}")
            return False
        except ApiError as error:
            failure.error.add_note(f"and its status could not be written: {error}")
            return False
        return True

    async def _own(self, write: Awaitable[T]) -> T:
        """Await a write of ours to the object in hand."""
        try:
            return await write
        except ConflictError as error:
            raise SupersededInPassError from error
        except NotFoundError as error:
            await self._look_for(error)
            raise

    async def _look_for(self, error: NotFoundError) -> None:
        """After a 404: is the object gone? A server says the same of a status subresource that a kind lacks.

        Raises:
            GoneInPassError: It is gone.
            InvalidStateMachineError: It is there, so what is missing is its status subresource.
        """
        info = self._setup.info
        try:
            current = await uncached(self._setup.client).find(
                type(self._cr), self._request.name, namespace=self._request.namespace
            )
        except NotFoundError:  # the kind is not there
            return
        if current is None or view_of(current).uid != view_of(self._cr).uid:
            raise GoneInPassError from error
        fault = (
            f"kind: {info} has no status subresource on the server, where a machine keeps its state; set "
            "subresources.status for the version in its CustomResourceDefinition"
        )
        raise InvalidStateMachineError(info.kind, [fault]) from error

    def _is_about_us(self, error: ApiStatusError) -> bool:
        """Whether the server speaks of the object in hand."""
        kinds = (self._setup.info.plural, self._setup.info.kind)
        return error.name == self._request.name and (not error.kind or error.kind.split(".")[0] in kinds)

    def _is_stale(self, error: Exception) -> bool:
        """Whether a hook failed because the object in hand is not the newest one."""
        return isinstance(error, ConflictError) and self._is_about_us(error)

    def _transitioned(self, from_: str, to: str, reason: str, dwell_seconds: float | None, at: datetime) -> None:
        self._setup.memory.of(self._key, to).entered = at
        self._setup.observer.transition(from_, to, dwell_seconds, reason)
        _logger.info("%s: state %r -> %r%s", self._where, from_, to, f" ({reason})" if reason else "")

    async def _announce(self, handler: StateHandler[CR]) -> None:
        if handler.event is not None:
            await self._record(handler.event.type, handler.event.reason, handler.event.message)

    async def _warn(self, failure: _Failure, state: str, handler: StateHandler[CR]) -> None:
        if isinstance(failure.error, HookTimeoutError):
            text = f"opsdk: {failure.error}"  # says all of it
        else:
            text = f'opsdk: {failure.phase} hook for state "{clipped(state)}" failed: {failure.error}'
        _logger.debug("%s: %s", self._where, text)  # whoever calls the machine gets the error, and logs it
        event = handler.failure_event
        if event is None:
            event = StateEvent(reason="EnterFailed" if failure.phase == "enter" else "ReconcileFailed")
        await self._record("Warning", event.reason, event.message or text)

    async def _record(self, type_: EventType, reason: str, message: str) -> None:
        try:
            await self._setup.recorder.record(self._cr, type_, reason, message)
        except Exception:
            _logger.exception("%s: the event %s could not be recorded", self._where, reason)

    def _timers(self, view: MachineStatusView) -> tuple[datetime, datetime]:
        """The time now, and the time from which the state's timers run."""
        now = clock.now()
        start = since(view, self._setup.memory, self._key)
        if start is None:  # the history was lost or edited: count from when we saw the object here first
            entry = self._setup.memory.of(self._key, view.state)
            start = entry.seen = entry.seen or now
        return now, start

    def _soonest(self, result: Result, handler: StateHandler[CR], start: datetime, state: str) -> Result:
        """The soonest of: what the hook asked for, what `enter` had asked for, and the next timer."""
        now = clock.now()
        for transition in handler.transitions:
            if left := time_left(transition, start, now):
                result = result.sooner(Result(requeue_after=left))
        return self._remembered(result, state)

    def _remembered(self, result: Result, state: str) -> Result:
        """The sooner of a result and of what `enter` had asked for."""
        now = clock.now()
        entry = self._setup.memory.peek(self._key, state)
        if entry is not None and entry.due is not None:
            if entry.due > now:
                result = result.sooner(Result(requeue_after=entry.due - now))
            else:
                entry.due = None
        return result


def _later(now: datetime, by: timedelta) -> datetime:
    """So much later, or at the end of time."""
    try:
        return now + by
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
