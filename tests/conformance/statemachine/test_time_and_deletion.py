"""Timers and the way out, on both servers and for both families of models."""

from __future__ import annotations

from datetime import timedelta

import pytest

from conformance.statemachine.bench import AGAIN, FINALIZER, Bench, Diary, Sized, is_big, path_of
from opsdk.client.finalizers import add_finalizers, remove_finalizers
from opsdk.models import view_of
from opsdk.statemachine import StateHandler, States, Transition
from opsdk.types import Result

pytestmark = pytest.mark.anyio

OTHER = "demo.example.com/other"


class TestTimers:
    async def test_after_is_dwell_time_and_the_pass_schedules_itself_for_it(self, bench: Bench) -> None:
        states: States[Sized] = {
            "a": StateHandler(transitions=[Transition(to="b", after=timedelta(minutes=5), reason="Waited")]),
            "b": StateHandler(),
        }
        machine = bench.machine(states)
        assert await bench.one_pass(machine) == AGAIN
        assert await bench.one_pass(machine, advance=timedelta(minutes=2)) == Result(requeue_after=timedelta(minutes=3))
        restarted = bench.machine(states)
        assert await bench.one_pass(restarted, advance=timedelta(minutes=3)) == AGAIN
        assert path_of(await bench.status()) == [("", "a", ""), ("a", "b", "Waited")]

    async def test_with_when_and_after_both_must_hold(self, bench: Bench) -> None:
        slow = Transition(to="b", when=is_big, after=timedelta(minutes=5))
        machine = bench.machine({"a": StateHandler(transitions=[slow]), "b": StateHandler()})
        await bench.one_pass(machine)
        await bench.resize(2)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=5))
        await bench.resize(1)
        assert await bench.one_pass(machine, advance=timedelta(minutes=5)) == Result()
        await bench.resize(2)
        assert await bench.one_pass(machine) == AGAIN

    async def test_after_a_transition_the_object_is_looked_at_at_once_and_what_enter_asked_for_is_remembered(
        self, bench: Bench
    ) -> None:
        machine = bench.machine(
            {
                "a": StateHandler(
                    enter=lambda part: Result(requeue_after=timedelta(minutes=2 * part.size)),
                    reconcile=lambda part: Result(requeue_after=timedelta(hours=part.size)),
                )
            }
        )
        assert await bench.one_pass(machine) == AGAIN
        assert await bench.one_pass(machine, advance=timedelta(seconds=30)) == Result(
            requeue_after=timedelta(seconds=90)
        )
        assert await bench.one_pass(machine, advance=timedelta(seconds=90)) == Result(requeue_after=timedelta(hours=1))


class TestDeletion:
    async def test_the_finalizer_is_there_before_the_first_entry(self, bench: Bench) -> None:
        async def enter(part: Sized) -> None:
            assert view_of(part).finalizers == view_of(await bench.get()).finalizers == [FINALIZER]

        machine = bench.machine({"a": StateHandler(enter=enter), "bye": StateHandler()}, deletion_state="bye")
        assert await bench.one_pass(machine) == AGAIN
        assert bench.tap.seen == ["PATCH p", "PATCH status"]
        await self._leave(bench)

    async def test_a_deleted_object_goes_through_the_deletion_state_and_then_it_is_gone(self, bench: Bench) -> None:
        diary = Diary()
        answers = [Result(requeue_after=timedelta(seconds=3)), Result()]

        async def reconcile(part: Sized) -> Result:
            await diary.reconcile(part)
            return answers.pop(0)

        machine = bench.machine(
            {"a": StateHandler(), "bye": StateHandler(enter=diary.enter, reconcile=reconcile)}, deletion_state="bye"
        )
        await bench.one_pass(machine)
        await bench.delete()
        diary.error = RuntimeError("stuck")
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        status = await bench.status()
        assert (path_of(status)[-1], status.pending_entry) == (("a", "bye", "Deleted"), True)
        diary.error = None
        assert await bench.one_pass(machine) == AGAIN
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(seconds=3))
        assert view_of(await bench.get()).finalizers == [FINALIZER]
        assert await bench.one_pass(machine) == Result()
        assert await bench.find() is None
        assert diary.calls == ["enter bye", "enter bye", "reconcile bye", "reconcile bye"]

    async def test_o04_other_peoples_finalizers_stand(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler(), "bye": StateHandler()}, deletion_state="bye")
        await bench.one_pass(machine)
        await add_finalizers(bench.aside, await bench.get(), OTHER)
        await bench.delete()
        for _ in range(2):
            await bench.one_pass(machine)
        assert view_of(await bench.get()).finalizers == [OTHER]
        assert await bench.one_pass(machine) == Result()
        assert bench.tap.seen == []
        await self._leave(bench)

    async def test_deletion_leaves_a_pending_entry_behind(self, bench: Bench) -> None:
        diary = Diary()
        diary.error = RuntimeError("no quota")
        machine = bench.machine({"a": StateHandler(enter=diary.enter), "bye": StateHandler()}, deletion_state="bye")
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        await bench.delete()
        assert await bench.one_pass(machine) == AGAIN
        status = await bench.status()
        assert (status.state, status.pending_entry) == ("bye", False)
        await bench.one_pass(machine)
        assert await bench.find() is None

    async def test_deletion_leaves_an_unknown_state_behind(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler(), "bye": StateHandler()}, deletion_state="bye")
        await bench.one_pass(machine)
        await bench.put_in_state("old")
        await bench.delete()
        for _ in range(2):
            await bench.one_pass(machine)
        assert await bench.find() is None

    async def test_without_a_deletion_state_a_deleted_object_is_like_any_other(self, bench: Bench) -> None:
        def marked_for_deletion(part: Sized) -> bool:
            return view_of(part).deletionTimestamp is not None

        machine = bench.machine(
            {"a": StateHandler(transitions=[Transition(to="bye", when=marked_for_deletion)]), "bye": StateHandler()}
        )
        await add_finalizers(bench.aside, await bench.get(), OTHER)
        await bench.one_pass(machine)
        await bench.delete()
        assert await bench.one_pass(machine) == AGAIN
        assert (await bench.status()).state == "bye"
        await self._leave(bench)

    async def test_an_unknown_state_without_a_deletion_state_holds_up_no_deletion(self, bench: Bench) -> None:
        await add_finalizers(bench.aside, await bench.get(), OTHER)
        await bench.put_in_state("old")
        await bench.delete()
        assert await bench.one_pass(bench.machine({"a": StateHandler()})) == Result()
        assert bench.tap.seen == []
        await self._leave(bench)

    async def _leave(self, bench: Bench) -> None:
        """So that the namespace can go."""
        await remove_finalizers(bench.aside, await bench.get(), OTHER, FINALIZER)
