"""One pass over one object: what it does, what it writes, what it tells."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import pytest
from lightkube.models.meta_v1 import Condition, ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.core_v1 import Event

from opsdk import clock
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.client.finalizers import add_finalizers
from opsdk.errors import (
    ApiConnectionError,
    ConflictError,
    InvalidStateMachineError,
    NotFoundError,
    ObjectError,
    ReconcileTimeoutError,
    TerminalError,
    UnknownStateError,
)
from opsdk.models import CustomResource, MachineStatus, Model, codec_of, crd_manifest, set_condition
from opsdk.protocols import EventType, KubeObject
from opsdk.statemachine import (
    PassResult,
    StateCondition,
    StateEvent,
    StateHandler,
    StateMachine,
    States,
    Transition,
)
from opsdk.testing import ApiServer
from opsdk.types import MergePatch, Request, Result

pytestmark = pytest.mark.anyio

AGAIN = Result(requeue_after=timedelta(0))


class Spec(Model):
    size: int = 1


class Status(MachineStatus):
    note: str = ""


class Widget(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> Status:
        return self.status


class Tap:
    """A transport that counts what goes through, and can let something happen first."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.writes: list[str] = []
        self.before: Callable[[HttpRequest], Awaitable[None]] | None = None

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        if self.before is not None:
            before, self.before = self.before, None
            await before(request)
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.path.rpartition('/')[2]}")
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


class Events:
    """An event recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    async def record(self, obj: KubeObject, /, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's word
        self.seen.append((type, reason, message))


class Observer:
    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def transition(self, from_: str, to: str, dwell_seconds: float | None, reason: str, /) -> None:
        self.seen.append((from_, to, dwell_seconds, reason))

    def pass_finished(self, result: PassResult, seconds: float, /) -> None:
        assert seconds >= 0
        self.seen.append((result,))

    def panic(self) -> None:
        self.seen.append(("panic",))


@dataclass
class Bench:
    """A server with one widget on it, and what was seen of the machine's work."""

    client: ApiClient
    tap: Tap
    events: Events = field(default_factory=Events)
    time: clock.ManualClock = field(default_factory=clock.ManualClock)

    def machine(self, states: States[Widget], initial: str = "a", *, max_history: int = 10) -> StateMachine[Widget]:
        return StateMachine(Widget, self.client, initial, states, max_history=max_history, event_recorder=self.events)

    async def get(self) -> Widget:
        return await self.client.get(Widget, "w", namespace="default")

    async def one_pass(self, machine: StateMachine[Widget]) -> Result:
        """Read the widget as a controller does, and run one pass. Forgets what was written before."""
        widget = await self.get()
        self.tap.writes.clear()
        self.events.seen.clear()
        return await machine.reconcile(widget)

    async def resize(self, size: int) -> None:
        await self.client.patch(Widget, "w", MergePatch({"spec": {"size": size}}), namespace="default")


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    async with ApiServer() as server:
        await server.install(Widget)
        tap = Tap(server.transport())
        bench = Bench(ApiClient(tap), tap)
        with clock.using(bench.time):
            await bench.client.create(Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec()))
            yield bench


def is_big(widget: Widget) -> bool:
    return widget.spec.size > 1


async def is_big_async(widget: Widget) -> bool:
    return widget.spec.size > 1


class Hooks:
    """Hooks that keep a diary."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None

    async def enter(self, widget: Widget) -> Result:
        self.calls.append(f"enter {widget.status.state}")
        if self.error is not None:
            raise self.error
        return Result()

    async def reconcile(self, widget: Widget) -> Result:
        self.calls.append(f"reconcile {widget.status.state}")
        if self.error is not None:
            raise self.error
        return Result()


def two_states(hooks: Hooks) -> States[Widget]:
    return {
        "a": StateHandler(
            enter=hooks.enter, reconcile=hooks.reconcile, transitions=[Transition(to="b", when=is_big, reason="Grown")]
        ),
        "b": StateHandler(enter=hooks.enter, reconcile=hooks.reconcile),
    }


class TestEntering:
    async def test_it_is_one_status_write_with_everything_in_it(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            widget.status.note = "prepared"

        machine = bench.machine(
            {
                "a": StateHandler(
                    enter=enter,
                    conditions=[StateCondition(type="Ready", status="False", reason="Starting", message="wait")],
                    event=StateEvent(reason="Started", message="here we go"),
                )
            }
        )
        assert await bench.one_pass(machine) == AGAIN
        assert bench.tap.writes == ["PATCH status"]
        assert bench.events.seen == [("Normal", "Started", "here we go")]
        status = (await bench.get()).status
        assert (status.state, status.observed_generation, status.note, status.pending_entry) == (
            "a",
            1,
            "prepared",
            False,
        )
        assert [(t.from_, t.to, t.reason, t.timestamp) for t in status.state_history] == [
            ("", "a", "", bench.time.now())
        ]
        assert status.conditions == [
            Condition(
                type="Ready",
                status="False",
                reason="Starting",
                message="wait",
                lastTransitionTime=bench.time.now(),
                observedGeneration=1,
            )
        ]

    async def test_the_object_in_hand_is_what_is_stored(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler()})
        widget = await bench.get()
        await machine.reconcile(widget)
        assert widget == await bench.get()

    async def test_enter_and_reconcile_never_run_in_one_pass(self, bench: Bench) -> None:
        hooks = Hooks()
        machine = bench.machine(two_states(hooks))
        results = [await bench.one_pass(machine) for _ in range(2)]
        await bench.resize(2)
        results += [await bench.one_pass(machine) for _ in range(2)]
        assert hooks.calls == ["enter a", "reconcile a", "enter b", "reconcile b"]
        assert results == [AGAIN, Result(), AGAIN, Result()]

    async def test_the_first_transition_that_holds_is_taken(self, bench: Bench) -> None:
        asked: list[str] = []

        def never(widget: Widget) -> bool:
            asked.append("never")
            return False

        def last(widget: Widget) -> bool:
            asked.append("last")
            return True

        machine = bench.machine(
            {
                "a": StateHandler(
                    transitions=[
                        Transition(to="c", when=never),
                        Transition(to="b", when=is_big_async),
                        Transition(to="c", when=last),
                    ]
                ),
                "b": StateHandler(),
                "c": StateHandler(),
            }
        )
        await bench.one_pass(machine)
        await bench.resize(2)
        await bench.one_pass(machine)
        assert (await bench.get()).status.state == "b"
        assert asked == ["never"]

    async def test_the_reason_of_a_transition_goes_into_the_history(self, bench: Bench) -> None:
        machine = bench.machine(two_states(Hooks()))
        await bench.one_pass(machine)
        await bench.resize(2)
        bench.time.advance(timedelta(seconds=7))
        await bench.one_pass(machine)
        history = (await bench.get()).status.state_history
        assert [(t.from_, t.to, t.reason) for t in history] == [("", "a", ""), ("a", "b", "Grown")]
        assert history[1].timestamp - history[0].timestamp == timedelta(seconds=7)

    async def test_the_oldest_history_goes_first(self, bench: Bench) -> None:
        machine = bench.machine(
            {
                "a": StateHandler(transitions=[Transition(to="b", after=timedelta(0))]),
                "b": StateHandler(transitions=[Transition(to="a", after=timedelta(0))]),
            },
            max_history=3,
        )
        for _ in range(6):
            await bench.one_pass(machine)
        history = (await bench.get()).status.state_history
        assert [(t.from_, t.to) for t in history] == [("a", "b"), ("b", "a"), ("a", "b")]

    async def test_conditions_follow_the_api_conventions(self, bench: Bench) -> None:
        def say(reason: str, status: str = "False") -> StateCondition:
            return StateCondition(type="Ready", status="True" if status == "True" else "False", reason=reason)

        machine = bench.machine(
            {
                "a": StateHandler(
                    conditions=[say("A"), StateCondition(type="Kept", status="Unknown", reason="A")],
                    transitions=[Transition(to="b", after=timedelta(0))],
                ),
                "b": StateHandler(conditions=[say("B")], transitions=[Transition(to="c", after=timedelta(0))]),
                "c": StateHandler(conditions=[say("C", "True")]),
            }
        )
        start = bench.time.now()
        seen: list[tuple[str, str, int | None, timedelta]] = []
        for size in (1, 2, 3):
            await bench.resize(size)
            await bench.one_pass(machine)
            ready, kept = (await bench.get()).status.conditions
            seen.append((ready.reason, ready.status, ready.observedGeneration, ready.lastTransitionTime - start))
            assert (kept.type, kept.reason, kept.observedGeneration) == ("Kept", "A", 1)
            bench.time.advance(timedelta(seconds=10))
        assert seen == [
            ("A", "False", 1, timedelta(0)),
            ("B", "False", 2, timedelta(0)),
            ("C", "True", 3, timedelta(seconds=20)),
        ]

    async def test_hooks_and_conditions_may_be_sync(self, bench: Bench) -> None:
        def enter(widget: Widget) -> Result:
            widget.status.note = "sync"
            return Result()

        machine = bench.machine({"a": StateHandler(enter=enter, reconcile=lambda widget: None)})  # noqa: ARG005 - a hook
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == Result()
        assert (await bench.get()).status.note == "sync"


class TestFailingEnter:
    async def test_it_is_recorded_as_pending_and_announced(self, bench: Bench) -> None:
        hooks = Hooks()
        hooks.error = RuntimeError("no quota")
        machine = bench.machine(two_states(hooks))
        with pytest.raises(RuntimeError, match="no quota"):
            await bench.one_pass(machine)
        assert bench.tap.writes == ["PATCH status"]
        assert bench.events.seen == [
            ("Warning", "EnterFailed", 'opsdk: enter hook for state "a" failed: no quota'),
        ]
        status = (await bench.get()).status
        assert (status.state, status.pending_entry, len(status.state_history)) == ("a", True, 1)
        assert (status.observed_generation, status.conditions) == (0, [])

    async def test_the_next_pass_enters_again_and_does_nothing_else(self, bench: Bench) -> None:
        hooks = Hooks()
        hooks.error = RuntimeError("no quota")
        states: States[Widget] = {
            "a": StateHandler(
                enter=hooks.enter,
                reconcile=hooks.reconcile,
                conditions=[StateCondition(type="Ready", status="True", reason="In")],
                event=StateEvent(reason="Entered"),
                transitions=[Transition(to="b", when=lambda widget: True)],  # noqa: ARG005 - a condition
            ),
            "b": StateHandler(),
        }
        machine = bench.machine(states)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await bench.one_pass(machine)
        assert bench.tap.writes == []  # nothing new to say
        hooks.error = None
        assert await bench.one_pass(machine) == AGAIN
        assert hooks.calls == ["enter a"] * 3
        assert bench.events.seen == [("Normal", "Entered", "")]
        status = (await bench.get()).status
        assert (status.state, status.pending_entry, len(status.state_history)) == ("a", False, 1)
        assert (status.observed_generation, [c.reason for c in status.conditions]) == (1, ["In"])

    async def test_its_changes_to_status_are_dropped_but_for_conditions_set_by_our_helper(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            widget.status.note = "half done"
            now = clock.now()
            widget.status.conditions.append(
                Condition(type="ByHand", status="True", reason="X", message="", lastTransitionTime=now)
            )
            set_condition(widget.status.conditions, type="Helped", status="False", reason="Why")
            raise RuntimeError("no quota")

        machine = bench.machine({"a": StateHandler(enter=enter)})
        widget = await bench.get()
        with pytest.raises(RuntimeError):
            await machine.reconcile(widget)
        stored = await bench.get()
        assert (stored.status.state, stored.status.note) == ("a", "")
        assert [(c.type, c.reason) for c in stored.status.conditions] == [("Helped", "Why")]
        assert widget == stored

    async def test_a_failure_event_of_ones_own_takes_the_place_of_the_default(self, bench: Bench) -> None:
        hooks = Hooks()
        hooks.error = RuntimeError("no quota")
        failure = StateEvent(reason="Stuck", message="ask for quota")
        machine = bench.machine({"a": StateHandler(enter=hooks.enter, failure_event=failure)})
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        assert bench.events.seen == [("Warning", "Stuck", "ask for quota")]

    async def test_an_empty_failure_message_stands_for_the_default_text(self, bench: Bench) -> None:
        hooks = Hooks()
        hooks.error = RuntimeError("no quota")
        machine = bench.machine({"a": StateHandler(enter=hooks.enter, failure_event=StateEvent(reason="Stuck"))})
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        assert bench.events.seen == [("Warning", "Stuck", 'opsdk: enter hook for state "a" failed: no quota')]

    async def test_the_error_keeps_its_cause(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            raise TerminalError("hopeless") from KeyError(widget.metadata.name)

        machine = bench.machine({"a": StateHandler(enter=enter)})
        with pytest.raises(TerminalError) as raised:
            await bench.one_pass(machine)
        assert isinstance(raised.value.__cause__, KeyError)

    async def test_a_status_that_cannot_be_written_is_noted_on_the_hooks_error(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            assert widget.spec.size
            bench.tap.before = refuse
            raise RuntimeError("no quota")

        async def refuse(request: HttpRequest) -> None:
            raise ApiConnectionError(request.path)

        observer = Observer()
        machine = bench.machine({"a": StateHandler(enter=enter)})
        machine.observe(observer)
        with pytest.raises(RuntimeError, match="no quota") as raised:
            await bench.one_pass(machine)
        assert "status could not be written" in raised.value.__notes__[0]
        assert ("", "a", None, "") not in observer.seen  # a transition that is not stored has not happened


class TestReconciling:
    async def test_what_it_changes_in_status_is_written_and_nothing_else(self, bench: Bench) -> None:
        async def reconcile(widget: Widget) -> Result:
            widget.status.note = f"size {widget.spec.size}"
            return Result(requeue_after=timedelta(minutes=1))

        machine = bench.machine({"a": StateHandler(reconcile=reconcile)})
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=1))
        assert bench.tap.writes == ["PATCH status"]
        await bench.one_pass(machine)
        assert bench.tap.writes == []  # no difference, no write
        await bench.resize(5)
        await bench.one_pass(machine)
        status = (await bench.get()).status
        assert (status.note, status.observed_generation) == ("size 5", 2)

    async def test_observed_generation_follows_passes_without_a_hook_too(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler()})
        await bench.one_pass(machine)
        await bench.resize(5)
        await bench.one_pass(machine)
        assert (await bench.get()).status.observed_generation == 2

    async def test_conditions_that_still_hold_are_of_the_generation_that_was_looked_at(self, bench: Bench) -> None:
        async def reconcile(widget: Widget) -> None:
            set_condition(widget.status.conditions, type="Own", status="True", reason="Hook", observed_generation=1)

        conditions = [StateCondition(type="Ready", status="True", reason="InA")]
        machine = bench.machine({"a": StateHandler(conditions=conditions, reconcile=reconcile)})
        await bench.one_pass(machine)
        entered = (await bench.get()).status.conditions[0].lastTransitionTime
        await bench.resize(5)
        await bench.one_pass(machine)
        found = {c.type: (c.observedGeneration, c.reason) for c in (await bench.get()).status.conditions}
        assert found == {"Ready": (2, "InA"), "Own": (1, "Hook")}
        assert (await bench.get()).status.conditions[0].lastTransitionTime == entered

    async def test_a_failure_is_announced_and_its_changes_are_dropped(self, bench: Bench) -> None:
        async def reconcile(widget: Widget) -> None:
            widget.status.note = "half done"
            set_condition(widget.status.conditions, type="Helped", status="False", reason="Why")
            raise RuntimeError("no quota")

        machine = bench.machine({"a": StateHandler(reconcile=reconcile)})
        await bench.one_pass(machine)
        await bench.resize(5)
        with pytest.raises(RuntimeError, match="no quota"):
            await bench.one_pass(machine)
        assert bench.events.seen == [
            ("Warning", "ReconcileFailed", 'opsdk: reconcile hook for state "a" failed: no quota')
        ]
        status = (await bench.get()).status
        assert (status.note, status.observed_generation) == ("", 1)
        assert [c.type for c in status.conditions] == ["Helped"]

    async def test_a_raw_reconciler_gets_the_request(self, bench: Bench) -> None:
        seen: list[Request] = []

        class Raw:
            async def reconcile(self, request: Request, /) -> Result:
                seen.append(request)
                return Result(requeue_after=timedelta(seconds=3))

        machine = bench.machine({"a": StateHandler(reconcile=Raw())})
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(seconds=3))
        assert seen == [Request("w", "default")]

    async def test_a_condition_that_raises_is_the_error_of_the_pass(self, bench: Bench) -> None:
        hooks = Hooks()

        def broken(widget: Widget) -> bool:
            raise LookupError(widget.metadata.name)

        machine = bench.machine(
            {
                "a": StateHandler(
                    reconcile=hooks.reconcile,
                    transitions=[Transition(to="b", when=broken), Transition(to="b", when=lambda widget: True)],  # noqa: ARG005 - a condition
                ),
                "b": StateHandler(enter=hooks.enter),
            }
        )
        await bench.one_pass(machine)
        with pytest.raises(LookupError):
            await bench.one_pass(machine)
        assert (hooks.calls, bench.tap.writes, bench.events.seen) == ([], [], [])

    async def test_a_hook_that_returns_something_else_is_told_so(self, bench: Bench) -> None:
        def reconcile(widget: Widget) -> Result:
            return {"requeue": widget.spec.size}  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - what is tested

        machine = bench.machine({"a": StateHandler(reconcile=reconcile)})
        await bench.one_pass(machine)
        with pytest.raises(TypeError, match='Widget reconcile hook of state "a": a hook returned dict'):
            await bench.one_pass(machine)

    async def test_a_hook_that_takes_too_long_is_cancelled(self, bench: Bench) -> None:
        async def reconcile(widget: Widget) -> None:
            await anyio.sleep(3600)
            widget.status.note = "too late"

        machine = bench.machine({"a": StateHandler(reconcile=reconcile, timeout=timedelta(milliseconds=20))})
        await bench.one_pass(machine)
        with pytest.raises(ReconcileTimeoutError) as raised:
            await bench.one_pass(machine)
        text = 'reconcile hook of state "a" ran longer than its timeout of 0.02 s'
        assert (str(raised.value), raised.value.timeout) == (text, timedelta(milliseconds=20))
        assert bench.events.seen == [("Warning", "ReconcileFailed", f"opsdk: {text}")]

    async def test_a_hook_that_catches_its_cancellation_is_told_of(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def reconcile(widget: Widget) -> None:
            try:
                await anyio.sleep(3600)
            except anyio.get_cancelled_exc_class():
                widget.status.note = "went on"

        machine = bench.machine({"a": StateHandler(reconcile=reconcile, timeout=timedelta(milliseconds=20))})
        await bench.one_pass(machine)
        await bench.one_pass(machine)
        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert 'Widget default/w: reconcile hook of state "a" ran on past its timeout of 0.02 s' in record.message
        assert (await bench.get()).status.note == "went on"

    async def test_a_failing_hook_is_logged_by_whoever_gets_the_error(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        hooks = Hooks()
        hooks.error = RuntimeError("no quota")
        with pytest.raises(RuntimeError):
            await bench.one_pass(bench.machine(two_states(hooks)))
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    async def test_a_hooks_own_timeout_stays_its_own(self, bench: Bench) -> None:
        async def reconcile(widget: Widget) -> None:
            with anyio.fail_after(0.001):
                await anyio.sleep(3600)
            widget.status.note = "too late"

        machine = bench.machine({"a": StateHandler(reconcile=reconcile, timeout=timedelta(seconds=30))})
        await bench.one_pass(machine)
        with pytest.raises(TimeoutError) as raised:
            await bench.one_pass(machine)
        assert not isinstance(raised.value, ReconcileTimeoutError)


def forget_the_past(status: Status) -> None:
    status.state_history.clear()


def call_it_entered(status: Status) -> None:
    status.pending_entry = False


class TestWhatIsTheMachinesOwn:
    async def test_a_reconcile_hook_that_sets_the_state_has_failed(self, bench: Bench) -> None:
        def reconcile(widget: Widget) -> None:
            widget.status.note = "moved"
            widget.status.state = "b"

        machine = bench.machine({"a": StateHandler(reconcile=reconcile), "b": StateHandler()})
        await bench.one_pass(machine)
        before = (await bench.get()).status
        with pytest.raises(ObjectError) as raised:
            await bench.one_pass(machine)
        assert str(raised.value) == (
            'Widget default/w: states are entered by transitions; the reconcile hook of state "a" set status.state '
            "to 'b'; declare a Transition"
        )
        assert bench.tap.writes == []
        assert (await bench.get()).status == before
        assert [reason for _, reason, _ in bench.events.seen] == ["ReconcileFailed"]

    async def test_an_enter_hook_that_sets_the_state_has_failed_and_the_transition_stands(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            widget.status.state = "x" * 5000

        machine = bench.machine({"a": StateHandler(enter=enter)})
        with pytest.raises(ObjectError, match=r'the enter hook of state "a" set status.state to \'xxx') as raised:
            await bench.one_pass(machine)
        assert len(str(raised.value)) < 300
        status = (await bench.get()).status
        assert (status.state, status.pending_entry, len(status.state_history)) == ("a", True, 1)

    @pytest.mark.parametrize(
        ("meddle", "text"),
        [
            (forget_the_past, "changed status.stateHistory"),
            (call_it_entered, "set status.pendingEntry to False"),
        ],
    )
    async def test_so_are_the_history_and_the_pending_entry(
        self, bench: Bench, meddle: Callable[[Status], None], text: str
    ) -> None:
        machine = bench.machine({"a": StateHandler(enter=lambda widget: meddle(widget.status))})
        with pytest.raises(ObjectError, match=text):
            await bench.one_pass(machine)
        status = (await bench.get()).status
        assert (status.state, status.pending_entry, len(status.state_history)) == ("a", True, 1)

    async def test_a_status_made_anew_by_a_hook_has_to_keep_it_too(self, bench: Bench) -> None:
        def reconcile(widget: Widget) -> None:
            widget.status = Status(state="a", note="new")

        machine = bench.machine({"a": StateHandler(reconcile=reconcile)})
        await bench.one_pass(machine)
        with pytest.raises(ObjectError, match=r"changed status\.stateHistory"):
            await bench.one_pass(machine)
        assert (await bench.get()).status.note == ""


class TestRaces:
    async def test_a_conflict_on_the_status_write_is_a_quiet_retry(self, bench: Bench) -> None:
        hooks = Hooks()
        machine = bench.machine(two_states(hooks))

        async def meddle(request: HttpRequest) -> None:
            assert request.path.endswith("/status")
            await bench.resize(7)

        widget = await bench.get()
        bench.tap.before = meddle
        assert await machine.reconcile(widget) == AGAIN
        assert bench.events.seen == []
        assert (await bench.get()).status.state_history == []
        await bench.one_pass(machine)
        status = (await bench.get()).status
        assert ([t.to for t in status.state_history], hooks.calls) == (["a"], ["enter a", "enter a"])

    async def test_conflicts_in_a_row_are_retried_ever_later(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler()})
        stale = await bench.get()
        await bench.resize(2)
        delays = [(await machine.reconcile(stale.model_copy(deep=True))).requeue_after for _ in range(12)]
        assert delays[0] == timedelta(0)
        assert delays[1:4] == [timedelta(milliseconds=50 * 2**n) for n in range(3)]
        assert delays[-1] == timedelta(seconds=5)
        await bench.one_pass(machine)
        assert (await bench.get()).status.state == "a"

    async def test_a_pass_that_succeeds_ends_the_row(self, bench: Bench) -> None:
        runs: list[int] = []

        async def reconcile(widget: Widget) -> None:
            runs.append(widget.spec.size)
            widget.status.note = f"run {len(runs)}"

        machine = bench.machine({"a": StateHandler(reconcile=reconcile)})
        await bench.one_pass(machine)
        delays: list[timedelta | None] = []
        for size in (2, 3):
            stale = await bench.get()
            await bench.resize(size)
            delays += [(await machine.reconcile(stale.model_copy(deep=True))).requeue_after for _ in range(2)]
            await bench.one_pass(machine)
        assert delays == [timedelta(0), timedelta(milliseconds=50)] * 2

    async def test_a_failing_enter_that_meets_a_conflict_is_a_quiet_retry(self, bench: Bench) -> None:
        hooks = Hooks()
        hooks.error = RuntimeError("no quota")
        machine = bench.machine(two_states(hooks))
        widget = await bench.get()
        await bench.resize(2)
        assert await machine.reconcile(widget) == AGAIN
        assert bench.events.seen == []

    async def test_a_hook_that_meets_a_conflict_on_the_object_itself_is_a_quiet_retry(self, bench: Bench) -> None:
        async def reconcile(widget: Widget) -> None:
            await bench.resize(widget.spec.size + 1)
            base = bench.client.snapshot(widget)
            widget.spec.size = 100
            await bench.client.patch_from(base, widget)

        machine = bench.machine({"a": StateHandler(reconcile=reconcile)})
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == AGAIN
        assert bench.events.seen == []

    async def test_a_conflict_on_another_object_is_the_hooks_failure(self, bench: Bench) -> None:
        hooks = Hooks()
        hooks.error = ConflictError(409, reason="Conflict", kind="deployments", name="w-web")
        machine = bench.machine(two_states(Hooks()))
        await bench.one_pass(machine)
        machine = bench.machine(two_states(hooks))
        with pytest.raises(ConflictError):
            await bench.one_pass(machine)
        assert [reason for _, reason, _ in bench.events.seen] == ["ReconcileFailed"]

    async def test_two_machines_that_race_cannot_fork_the_history(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            await anyio.sleep(0.01)
            widget.status.note = "in"

        states: States[Widget] = {
            "a": StateHandler(enter=enter, transitions=[Transition(to="b", when=is_big)]),
            "b": StateHandler(enter=enter),
        }
        await bench.resize(2)
        machines = [bench.machine(states) for _ in range(3)]

        async def drive(machine: StateMachine[Widget]) -> None:
            for _ in range(4):
                await machine.reconcile(await bench.get())

        async with anyio.create_task_group() as tasks:
            for machine in machines:
                tasks.start_soon(drive, machine)
        history = (await bench.get()).status.state_history
        assert [(t.from_, t.to) for t in history] == [("", "a"), ("a", "b")]

    async def test_q02_a_hook_that_deletes_the_object_leaves_nothing_to_do(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            await bench.client.delete(Widget, "w", namespace=widget.metadata.namespace)

        machine = bench.machine({"a": StateHandler(enter=enter, event=StateEvent(reason="Entered"))})
        assert await bench.one_pass(machine) == Result()
        assert bench.events.seen == []

    async def test_q02_even_when_it_fails_afterwards(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            await bench.client.delete(Widget, "w", namespace=widget.metadata.namespace)
            raise RuntimeError("gone")

        machine = bench.machine({"a": StateHandler(enter=enter)})
        assert await bench.one_pass(machine) == Result()
        assert bench.events.seen == []

    async def test_a_finalizer_that_is_installed_inside_a_hook_causes_no_conflict(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            await add_finalizers(bench.client, widget, "demo.example.com/children")
            widget.status.note = "with finalizer"

        machine = bench.machine({"a": StateHandler(enter=enter)})
        assert await bench.one_pass(machine) == AGAIN
        assert bench.tap.writes == ["PATCH w", "PATCH status"]
        widget = await bench.get()
        assert widget.metadata.finalizers == ["demo.example.com/children"]
        assert (widget.status.state, widget.status.note) == ("a", "with finalizer")

    async def test_a_finalizer_that_is_installed_after_a_foreign_write_hides_no_conflict(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            if widget.spec.size == 1:
                await bench.resize(2)
            await add_finalizers(bench.client, widget, "demo.example.com/children")

        machine = bench.machine({"a": StateHandler(enter=enter)})
        assert await bench.one_pass(machine) == AGAIN
        widget = await bench.get()
        assert (widget.status.state, widget.metadata.finalizers) == ("", ["demo.example.com/children"])

    async def test_a_kind_without_a_status_subresource_is_no_object_that_is_gone(self, bench: Bench) -> None:
        manifest = json.loads(json.dumps(crd_manifest(Widget)))
        del manifest["spec"]["versions"][0]["subresources"]
        crd = codec_of(CustomResourceDefinition).decode(json.dumps(manifest).encode())
        async with ApiServer() as server:
            client = server.client()
            await client.create(crd)
            widget = await client.create(Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec()))
            machine = StateMachine(Widget, client, "a", {"a": StateHandler()}, event_recorder=bench.events)
            with pytest.raises(InvalidStateMachineError, match="has no status subresource on the server"):
                await machine.reconcile(widget)

    async def test_a_kind_that_was_uninstalled_is_no_object_that_is_gone(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler()})
        widget = await bench.get()
        await bench.client.delete(CustomResourceDefinition, "widgets.demo.example.com")
        with pytest.raises(NotFoundError):
            await machine.reconcile(widget)

    async def test_an_object_that_was_made_anew_meanwhile_is_not_the_one_in_hand(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            await bench.client.delete(Widget, "w", namespace="default")
            await bench.client.create(Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec()))
            widget.status.note = "of the one before"

        assert (await bench.one_pass(bench.machine({"a": StateHandler(enter=enter)}))).requeue_after in {
            None,
            timedelta(0),
        }
        assert (await bench.get()).status.state == ""


class TestObjectsThatDoNotKeepWhatTheyAreTold:
    async def test_a_status_that_is_a_copy_is_found_out_before_any_hook_runs(self, bench: Bench) -> None:
        class Copying(Widget, kind="Widget", plural="widgets"):
            def get_machine_status(self) -> Status:
                return self.status.model_copy(deep=True)

        entered: list[str] = []
        machine = StateMachine(
            Copying,
            bench.client,
            "a",
            {"a": StateHandler(enter=lambda widget: entered.append(widget.status.state))},
            event_recorder=bench.events,
        )
        with pytest.raises(ObjectError, match=r"Copying.get_machine_status\(\) returned a copy"):
            await machine.reconcile(await bench.client.get(Copying, "w", namespace="default"))
        assert (entered, bench.tap.writes[1:]) == ([], [])

    async def test_a_schema_that_drops_what_the_machine_writes_is_found_out(self, bench: Bench) -> None:
        manifest = json.loads(json.dumps(crd_manifest(Widget)))
        fields = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        del fields["state"], fields["stateHistory"]
        crd = codec_of(CustomResourceDefinition).decode(json.dumps(manifest).encode())
        async with ApiServer() as server:
            client = server.client()
            await client.create(crd)
            widget = await client.create(Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec()))
            machine = StateMachine(Widget, client, "a", {"a": StateHandler()}, event_recorder=bench.events)
            with pytest.raises(ObjectError, match=r"Widget: the server did not keep status.state, status.stateHistory"):
                await machine.reconcile(widget)


class TestStatesOfOthers:
    async def test_a_state_that_the_graph_lacks_is_a_terminal_error_that_names_it(self, bench: Bench) -> None:
        await bench.one_pass(bench.machine({"old": StateHandler()}, "old"))
        machine = bench.machine(two_states(Hooks()))
        with pytest.raises(UnknownStateError, match="default/w is in state 'old'") as raised:
            await bench.one_pass(machine)
        assert isinstance(raised.value, TerminalError)
        assert raised.value.known == ("a", "b")

    async def test_a_long_unknown_state_is_cut_in_the_text_only(self, bench: Bench) -> None:
        machine = bench.machine(two_states(Hooks()))
        await bench.client.status.patch(Widget, "w", MergePatch({"status": {"state": "x" * 5000}}), namespace="default")
        with pytest.raises(UnknownStateError) as raised:
            await bench.one_pass(machine)
        assert len(str(raised.value)) < 400
        assert raised.value.state == "x" * 5000

    async def test_unless_the_object_is_being_deleted(self, bench: Bench) -> None:
        await bench.one_pass(bench.machine({"old": StateHandler()}, "old"))
        await add_finalizers(bench.client, await bench.get(), "demo.example.com/other")
        await bench.client.delete(Widget, "w", namespace="default")
        assert await bench.one_pass(bench.machine(two_states(Hooks()))) == Result()
        assert bench.tap.writes == []


class TestTelling:
    async def test_an_observer_hears_transitions_results_and_dwell_times(self, bench: Bench) -> None:
        observer = Observer()
        machine = bench.machine(two_states(Hooks()))
        machine.observe(observer)
        await bench.one_pass(machine)
        await bench.one_pass(machine)
        bench.time.advance(timedelta(seconds=42))
        await bench.resize(2)
        await bench.one_pass(machine)
        assert observer.seen == [
            ("", "a", None, ""),
            ("requeue",),
            ("success",),
            ("a", "b", 42.0, "Grown"),
            ("requeue",),
        ]

    async def test_several_observers_listen_beside_each_other_and_each_once(self, bench: Bench) -> None:
        first, second = Observer(), Observer()

        def mistaken(widget: Widget) -> None:
            raise KeyError(widget.status.state)

        machine = bench.machine({"a": StateHandler(reconcile=mistaken)})
        for observer in (first, second, first):
            machine.observe(observer)
        await bench.one_pass(machine)
        with pytest.raises(KeyError):
            await bench.one_pass(machine)
        assert first.seen == second.seen == [("", "a", None, ""), ("requeue",), ("panic",), ("error",)]

    async def test_an_observer_hears_of_failures_and_panics(self, bench: Bench) -> None:
        observer = Observer()
        hooks = Hooks()
        machine = bench.machine(two_states(hooks))
        machine.observe(observer)
        for error in (TerminalError("meant"), ExceptionGroup("several", [OSError(), KeyError("a mistake")])):
            hooks.error = error
            with pytest.raises(type(error)):
                await bench.one_pass(machine)
        assert observer.seen == [("", "a", None, ""), ("error",), ("panic",), ("error",)]

    async def test_without_a_recorder_events_go_through_the_client(self, bench: Bench) -> None:
        handler = StateHandler[Widget](event=StateEvent(reason="Entered", message="at last"))
        machine = StateMachine(Widget, bench.client, "a", {"a": handler})
        await machine.reconcile(await bench.get())
        (event,) = await bench.client.list(Event, namespace="default")
        assert (event.reason, event.message, event.type, event.involvedObject.name) == (
            "Entered",
            "at last",
            "Normal",
            "w",
        )

    async def test_a_recorder_can_be_injected_unless_one_was_given(self, bench: Bench) -> None:
        handler = StateHandler[Widget](event=StateEvent(reason="Entered"))
        given, injected = Events(), Events()
        own = StateMachine(Widget, bench.client, "a", {"a": handler}, event_recorder=given)
        own.use_recorder(injected)
        await own.reconcile(await bench.get())
        assert (given.seen, injected.seen) == ([("Normal", "Entered", "")], [])

        await bench.client.create(Widget(metadata=ObjectMeta(name="v", namespace="default"), spec=Spec()))
        other = StateMachine(Widget, bench.client, "a", {"a": handler})
        other.use_recorder(injected)
        await other.reconcile(await bench.client.get(Widget, "v", namespace="default"))
        assert injected.seen == [("Normal", "Entered", "")]

    async def test_an_event_that_cannot_be_recorded_fails_no_pass(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken:
            async def record(self, obj: KubeObject, /, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's word
                raise RuntimeError("no pen")

        handler = StateHandler[Widget](event=StateEvent(reason="Entered"))
        machine = StateMachine(Widget, bench.client, "a", {"a": handler}, event_recorder=Broken())
        assert await machine.reconcile(await bench.get()) == AGAIN
        assert "the event Entered could not be recorded" in caplog.text

    async def test_an_event_may_be_a_warning(self, bench: Bench) -> None:
        event = StateEvent(reason="Failed", message="no way", type="Warning")
        await bench.one_pass(bench.machine({"a": StateHandler(event=event)}))
        assert bench.events.seen == [("Warning", "Failed", "no way")]

    async def test_a_transition_is_logged(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "opsdk.statemachine")
        await bench.one_pass(bench.machine(two_states(Hooks())))
        assert "Widget default/w: state '' -> 'a'" in caplog.text

    async def test_the_client_is_in_reach(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler()})
        assert machine.client is bench.client
        assert machine.kind is Widget
