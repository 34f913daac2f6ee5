"""What one pass does, writes and tells; the same on the in-memory API server and a real one, for models and structs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta

from conformance.statemachine.bench import AGAIN, FINALIZER, Bare, Bench, Crash, Diary, PartSpec, Sized, is_big, path_of
from opsdk.client.finalizers import add_finalizers, remove_finalizers
from opsdk.errors import InvalidStateMachineError, TerminalError, UnknownStateError
from opsdk.models import set_condition, view_of
from opsdk.protocols import EventType, KubeObject
from opsdk.statemachine import Coverage, StateCondition, StateEvent, StateHandler, StateMachine, States, Transition
from opsdk.types import MergePatch, Request, Result

pytestmark = pytest.mark.anyio


def two_states(diary: Diary) -> States[Sized]:
    return {
        "a": StateHandler(
            enter=diary.enter,
            reconcile=diary.reconcile,
            conditions=[StateCondition(type="Ready", status="False", reason="Starting")],
            event=StateEvent(reason="Started", message="here we go"),
            transitions=[Transition(to="b", when=is_big, reason="Grown")],
        ),
        "b": StateHandler(
            enter=diary.enter,
            reconcile=diary.reconcile,
            conditions=[StateCondition(type="Ready", status="True", reason="Running", message="all is well")],
            event=StateEvent(reason="Running"),
        ),
    }


class TestConstruction:
    async def test_a_wrong_graph_is_refused_with_all_its_faults_before_anything_is_sent(self, bench: Bench) -> None:
        bench.tap.seen.clear()
        states: States[Sized] = {
            "a": StateHandler(
                conditions=[StateCondition(type="", status="True", reason="")],
                event=StateEvent(reason=""),
                transitions=[Transition(to="nowhere", when=is_big), Transition(to="a")],
            )
        }
        with pytest.raises(InvalidStateMachineError) as raised:
            bench.machine(states, "start", max_history=0)
        assert [fault.partition(": ")[0] for fault in raised.value.faults] == [
            "initial",
            *["state 'a'"] * 5,
            "max_history",
        ]
        assert bench.tap.seen == []

    async def test_a_kind_without_a_status_subresource_is_refused_by_name(self, bench: Bench) -> None:
        bare = Bare(metadata=ObjectMeta(name="p", namespace=bench.namespace), spec=PartSpec())
        bare = await bench.aside.create(bare)
        machine = StateMachine(Bare, bench.client, "a", {"a": StateHandler()})
        with pytest.raises(InvalidStateMachineError, match="has no status subresource on the server"):
            await machine.reconcile(bare)
        assert (await bench.aside.get(Bare, "p", namespace=bench.namespace)).status.state == ""


class TestOneThingAPass:
    async def test_initial_entry_reconcile_transition_each_have_a_pass_of_their_own(self, bench: Bench) -> None:
        diary = Diary()
        machine = bench.machine(two_states(diary))
        results = [await bench.one_pass(machine) for _ in range(2)]
        await bench.resize(2)
        results += [await bench.one_pass(machine) for _ in range(2)]
        assert diary.calls == ["enter a", "reconcile a", "enter b", "reconcile b"]
        assert results == [AGAIN, Result(), AGAIN, Result()]
        assert path_of(await bench.status()) == [("", "a", ""), ("a", "b", "Grown")]

    async def test_the_first_transition_whose_condition_holds_is_taken_and_no_other_is_asked(
        self, bench: Bench
    ) -> None:
        asked: list[str] = []

        async def ask(part: Sized, name: str, answer: bool) -> bool:  # noqa: FBT001 - a table
            asked.append(name)
            return answer and is_big(part)

        machine = bench.machine(
            {
                "a": StateHandler(
                    transitions=[
                        Transition(to="c", when=lambda part: ask(part, "first", False)),
                        Transition(to="b", when=lambda part: ask(part, "second", True)),
                        Transition(to="c", when=lambda part: ask(part, "third", True)),
                    ]
                ),
                "b": StateHandler(),
                "c": StateHandler(),
            }
        )
        await bench.one_pass(machine)
        await bench.resize(2)
        await bench.one_pass(machine)
        assert ((await bench.status()).state, asked) == ("b", ["first", "second"])

    async def test_a_condition_that_raises_is_the_error_and_nothing_happens(self, bench: Bench) -> None:
        diary = Diary()

        def broken(part: Sized) -> bool:
            raise LookupError(part.note)

        machine = bench.machine(
            {
                "a": StateHandler(
                    reconcile=diary.reconcile,
                    transitions=[Transition(to="b", when=broken), Transition(to="b", after=timedelta(0))],
                ),
                "b": StateHandler(enter=diary.enter),
            }
        )
        await bench.one_pass(machine)
        with pytest.raises(LookupError):
            await bench.one_pass(machine)
        assert (diary.calls, bench.tap.seen) == ([], [])
        assert path_of(await bench.status()) == [("", "a", "")]


class TestEntering:
    async def test_it_is_one_status_write_with_everything_in_it_and_then_the_event(self, bench: Bench) -> None:
        async def enter(part: Sized) -> None:
            part.take_note("prepared")

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
        assert bench.tap.seen == ["PATCH status", "POST events"]
        part = await bench.get()
        status = part.get_machine_status()
        assert (status.state, status.observed_generation, part.note, status.pending_entry) == (
            "a",
            1,
            "prepared",
            False,
        )
        assert [(entry.from_, entry.to, entry.timestamp) for entry in status.state_history] == [
            ("", "a", bench.time.now())
        ]
        (ready,) = status.conditions
        assert (ready.type, ready.status, ready.reason, ready.message, ready.observedGeneration) == (
            "Ready",
            "False",
            "Starting",
            "wait",
            1,
        )
        assert ready.lastTransitionTime == bench.time.now()
        assert await bench.events() == [("Normal", "Started", "here we go")]

    async def test_the_object_in_hand_is_what_is_stored(self, bench: Bench) -> None:
        part = await bench.get()
        await bench.machine(two_states(Diary())).reconcile(part)
        stored = await bench.get()
        assert view_of(part).resourceVersion == view_of(stored).resourceVersion
        assert part.get_machine_status() == stored.get_machine_status()

    async def test_an_enter_that_fails_is_recorded_as_pending_and_called_again_until_it_succeeds(
        self, bench: Bench
    ) -> None:
        diary = Diary()
        diary.error = RuntimeError("no quota")
        machine = bench.machine(two_states(diary))
        with pytest.raises(RuntimeError, match="no quota"):
            await bench.one_pass(machine)
        assert bench.tap.seen == ["PATCH status", "POST events"]
        status = await bench.status()
        assert (status.state, status.pending_entry, status.observed_generation, status.conditions) == ("a", True, 0, [])
        await bench.resize(2)  # a transition's condition holds now; the entry comes first
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        assert "PATCH status" not in bench.tap.seen  # nothing new to say
        diary.error = None
        assert await bench.one_pass(machine) == AGAIN
        assert diary.calls == ["enter a"] * 3
        status = await bench.status()
        assert (path_of(status), status.pending_entry, status.observed_generation) == ([("", "a", "")], False, 2)
        assert [condition.reason for condition in status.conditions] == ["Starting"]
        assert await bench.events() == [
            ("Normal", "Started", "here we go"),
            ("Warning", "EnterFailed", 'opsdk: enter hook for state "a" failed: no quota'),
        ]

    async def test_a_failing_enters_changes_are_dropped_except_for_conditions_set_by_helpers(
        self, bench: Bench
    ) -> None:
        async def enter(part: Sized) -> None:
            part.take_note("half done")
            set_condition(part.get_machine_status().conditions, type="Quota", status="False", reason="Exceeded")
            raise RuntimeError("no quota")

        with pytest.raises(RuntimeError):
            await bench.one_pass(bench.machine({"a": StateHandler(enter=enter)}))
        part = await bench.get()
        assert part.note == ""
        assert [(each.type, each.reason) for each in part.get_machine_status().conditions] == [("Quota", "Exceeded")]

    async def test_conditions_follow_the_api_conventions(self, bench: Bench) -> None:
        def ready(reason: str, *, up: bool = False) -> StateCondition:
            return StateCondition(type="Ready", status="True" if up else "False", reason=reason)

        at_once = timedelta(0)
        machine = bench.machine(
            {
                "a": StateHandler(
                    conditions=[ready("A"), StateCondition(type="Kept", status="Unknown", reason="A")],
                    transitions=[Transition(to="b", after=at_once)],
                ),
                "b": StateHandler(conditions=[ready("B")], transitions=[Transition(to="c", after=at_once)]),
                "c": StateHandler(conditions=[ready("C", up=True)]),
            }
        )
        start = bench.time.now()
        seen: list[tuple[str, str, int | None, timedelta]] = []
        for size in (1, 2, 3):
            await bench.resize(size)
            await bench.one_pass(machine)
            one, kept = (await bench.status()).conditions
            seen.append((one.reason, one.status, one.observedGeneration, one.lastTransitionTime - start))
            assert (kept.type, kept.reason, kept.observedGeneration) == ("Kept", "A", 1)
            bench.time.advance(timedelta(seconds=10))
        assert seen == [
            ("A", "False", 1, timedelta(0)),
            ("B", "False", 2, timedelta(0)),
            ("C", "True", 3, timedelta(seconds=20)),
        ]

    async def test_the_history_evicts_the_oldest(self, bench: Bench) -> None:
        at_once = timedelta(0)
        machine = bench.machine(
            {
                "a": StateHandler(transitions=[Transition(to="b", after=at_once)]),
                "b": StateHandler(transitions=[Transition(to="a", after=at_once)]),
            },
            max_history=2,
        )
        for _ in range(4):
            await bench.one_pass(machine)
        assert path_of(await bench.status()) == [("b", "a", ""), ("a", "b", "")]

    async def test_a_finalizer_that_is_installed_inside_enter_causes_no_conflict(self, bench: Bench) -> None:
        async def enter(part: Sized) -> None:
            await add_finalizers(bench.client, part, "demo.example.com/children")
            part.take_note("with finalizer")

        assert await bench.one_pass(bench.machine({"a": StateHandler(enter=enter)})) == AGAIN
        assert bench.tap.seen == ["PATCH p", "PATCH status"]
        part = await bench.get()
        assert (part.note, part.get_machine_status().state) == ("with finalizer", "a")
        assert view_of(part).finalizers == ["demo.example.com/children"]
        await add_finalizers(bench.aside, part, "demo.example.com/other")
        patch = MergePatch({"metadata": {"finalizers": None}})
        await bench.aside.patch(bench.family.kind, "p", patch, namespace=bench.namespace)


class TestReconciling:
    async def test_what_it_changed_in_status_is_written_if_it_differs(self, bench: Bench) -> None:
        async def reconcile(part: Sized) -> Result:
            part.take_note(f"size {part.size}")
            return Result(requeue_after=timedelta(minutes=1))

        machine = bench.machine({"a": StateHandler(reconcile=reconcile)})
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=1))
        assert bench.tap.seen == ["PATCH status"]
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=1))
        assert bench.tap.seen == []
        await bench.resize(5)
        await bench.one_pass(machine)
        part = await bench.get()
        assert (part.note, part.get_machine_status().observed_generation) == ("size 5", 2)

    async def test_a_pass_in_rest_sends_nothing_at_all(self, bench: Bench) -> None:
        never = Transition[Sized](to="b", when=lambda part: part.size > 100)
        later = Transition[Sized](to="b", after=timedelta(days=1))
        machine = bench.machine(
            {"a": StateHandler(reconcile=lambda part: None, transitions=[never, later]), "b": StateHandler()},  # noqa: ARG005 - a hook
            deletion_state="b",
        )
        await bench.one_pass(machine)
        for _ in range(3):
            await bench.one_pass(machine)
            assert bench.tap.seen == []
        restarted = bench.machine({"a": StateHandler(transitions=[later]), "b": StateHandler()}, deletion_state="b")
        await bench.one_pass(restarted)
        assert bench.tap.seen == []
        await bench.delete()
        for _ in range(2):
            await bench.one_pass(machine)

    async def test_a_failure_keeps_status_and_is_announced_in_the_authors_words_if_there_are_any(
        self, bench: Bench
    ) -> None:
        diary = Diary()
        stuck = StateEvent(reason="Stuck", message="ask for quota")
        machine = bench.machine(
            {
                "a": StateHandler(
                    reconcile=diary.reconcile, failure_event=stuck, transitions=[Transition(to="b", when=is_big)]
                ),
                "b": StateHandler(reconcile=diary.reconcile),
            }
        )
        await bench.one_pass(machine)
        diary.error = RuntimeError("no quota")
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        assert bench.tap.seen == ["POST events"]
        await bench.resize(2)
        await bench.one_pass(machine)
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        assert await bench.events() == [
            ("Warning", "ReconcileFailed", 'opsdk: reconcile hook for state "b" failed: no quota'),
            ("Warning", "Stuck", "ask for quota"),
        ]

    async def test_a_raw_reconciler_gets_the_request(self, bench: Bench) -> None:
        seen: list[Request] = []

        class Raw:
            async def reconcile(self, request: Request, /) -> Result:
                seen.append(request)
                return Result(requeue_after=timedelta(seconds=3))

        machine = bench.machine({"a": StateHandler(reconcile=Raw())})
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(seconds=3))
        assert seen == [Request("p", bench.namespace)]

    async def test_what_the_model_does_not_know_survives(self, bench: Bench) -> None:
        await bench.one_pass(bench.machine({"a": StateHandler()}))
        foreign = MergePatch({"metadata": {"annotations": {"theirs": "kept"}}})
        await bench.aside.patch(bench.family.kind, "p", foreign, namespace=bench.namespace)
        await bench.resize(2)
        await bench.one_pass(bench.machine(two_states(Diary())))
        part = await bench.get()
        assert view_of(part).annotations == {"theirs": "kept"}
        assert (part.size, part.get_machine_status().state) == (2, "b")


class TestRaces:
    async def test_a_conflict_is_a_quiet_retry_and_no_transition_is_lost_or_doubled(self, bench: Bench) -> None:
        diary = Diary()
        machine = bench.machine(two_states(diary))
        stale = await bench.get()
        await bench.resize(2)
        assert await machine.reconcile(stale) == AGAIN
        assert path_of(await bench.status()) == []
        assert await bench.events() == []
        for _ in range(3):
            await bench.one_pass(machine)
        assert path_of(await bench.status()) == [("", "a", ""), ("a", "b", "Grown")]
        assert diary.calls == ["enter a", "enter a", "enter b", "reconcile b"]

    async def test_machines_that_race_on_one_object_cannot_fork_its_history(self, bench: Bench) -> None:
        await bench.resize(2)
        machines = [bench.machine(two_states(Diary())) for _ in range(3)]

        async def drive(machine: StateMachine[Sized]) -> None:
            for _ in range(4):
                await machine.reconcile(await bench.get())

        async with anyio.create_task_group() as tasks:
            for machine in machines:
                tasks.start_soon(drive, machine)
        for _ in range(2):  # where all lost their races every time
            await machines[0].reconcile(await bench.get())
        assert path_of(await bench.status()) == [("", "a", ""), ("a", "b", "Grown")]

    async def test_q02_an_object_that_is_gone_leaves_nothing_to_do(self, bench: Bench) -> None:
        async def enter(part: Sized) -> None:
            await bench.delete()

        machine = bench.machine({"a": StateHandler(enter=enter, event=StateEvent(reason="Entered"))})
        assert await bench.one_pass(machine) == Result()
        assert bench.tap.seen == ["PATCH status", "GET p"]


class TestCrashes:
    async def test_a_crash_after_any_write_loses_and_doubles_nothing(self, bench: Bench) -> None:
        await bench.resize(2)
        bench.tap.crash = "after"
        writes: list[str] = []
        for _ in range(3):
            with pytest.raises(Crash):
                await bench.one_pass(bench.machine(two_states(Diary()), deletion_state="b"))
            writes += bench.tap.seen
        assert writes == ["PATCH p", "PATCH status", "PATCH status"]
        bench.tap.crash = None
        assert await bench.one_pass(bench.machine(two_states(Diary()), deletion_state="b")) == Result()
        assert (path_of(await bench.status()), bench.tap.seen) == ([("", "a", ""), ("a", "b", "Grown")], [])
        await remove_finalizers(bench.aside, await bench.get(), FINALIZER)

    async def test_after_a_crash_before_the_write_enter_runs_again(self, bench: Bench) -> None:
        diary = Diary()
        bench.tap.crash = "before"
        with pytest.raises(Crash):
            await bench.one_pass(bench.machine(two_states(diary)))
        assert (await bench.status()).state == ""
        bench.tap.crash = None
        await bench.one_pass(bench.machine(two_states(diary)))
        assert diary.calls == ["enter a", "enter a"]
        assert path_of(await bench.status()) == [("", "a", "")]


class TestStatesOfOthers:
    async def test_an_unknown_state_is_a_terminal_error_that_names_it_and_the_known_ones(self, bench: Bench) -> None:
        await bench.put_in_state("old")
        with pytest.raises(UnknownStateError, match="is in state 'old'") as raised:
            await bench.one_pass(bench.machine(two_states(Diary())))
        assert isinstance(raised.value, TerminalError)
        assert raised.value.known == ("a", "b")
        assert bench.tap.seen == []


class TestTelling:
    async def test_an_event_that_cannot_be_recorded_fails_no_pass(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken:
            async def record(self, obj: KubeObject, /, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's word
                raise RuntimeError("no pen")

        states: States[Sized] = {"a": StateHandler(event=StateEvent(reason="Entered"))}
        machine = StateMachine(bench.family.kind, bench.client, "a", states, event_recorder=Broken())
        assert await bench.one_pass(machine) == AGAIN
        assert ((await bench.status()).state, await bench.events()) == ("a", [])
        assert "the event Entered could not be recorded" in caplog.text

    async def test_a_long_event_is_cut_to_what_the_api_takes(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler(event=StateEvent(reason="Entered", message="x" * 10_000))})
        assert await bench.one_pass(machine) == AGAIN
        ((_, _, message),) = await bench.events()
        assert len(message.encode()) <= 1024

    async def test_it_explains_where_an_object_is_and_sends_nothing_for_it(self, bench: Bench) -> None:
        machine = bench.machine(
            {
                "a": StateHandler(
                    transitions=[
                        Transition(to="b", when=is_big, reason="Grown"),
                        Transition(to="b", after=timedelta(hours=1)),
                    ]
                ),
                "b": StateHandler(),
            }
        )
        await bench.one_pass(machine, advance=timedelta(minutes=1))
        bench.time.advance(timedelta(minutes=10))
        part = await bench.get()
        bench.tap.seen.clear()
        told = await machine.explain(part)
        assert str(told).splitlines() == [
            "state 'a' since 2026-01-01T00:01:00+00:00: a transition's condition or time: 'b'",
            "  to 'b' (Grown): its condition does not hold",
            "  to 'b': due in 0:50:00",
        ]
        await bench.resize(2)
        assert (await machine.explain(await bench.get())).waits_for == "the next pass, which goes to 'b'"
        assert bench.tap.seen == []

    async def test_the_graph_shows_what_was_driven_through_it_and_where_objects_are(self, bench: Bench) -> None:
        coverage = Coverage()
        machine = bench.machine(two_states(Diary()))
        machine.observe(coverage)
        await bench.create("q")
        await bench.resize(2)
        for _ in range(2):
            await bench.one_pass(machine)
        parts = await bench.aside.list(bench.family.kind, namespace=bench.namespace)
        live = Counter(part.get_machine_status().state for part in parts)
        graph = machine.graph(coverage=coverage, live=live)
        assert graph.uncovered == ()
        for label in ('"a · 0"', '"b · 1"', '"no state · 1"', "Grown ×1"):  # noqa: RUF001 - the sign of multiplication
            assert label in graph.mermaid
        for label in ('label="a\\n0"', 'label="b\\n1"', 'label="Grown ×1"'):  # noqa: RUF001 - the sign of multiplication
            assert label in graph.dot
        heard = dict(coverage.fired)
        read = Coverage()
        read.add_history((await bench.status()).state_history)
        assert read.fired == heard
