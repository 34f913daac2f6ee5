"""Timers, the way out, and machines over structs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest
from lightkube.core import resource as lightkube_resource
from lightkube.core.schema import DictMixin
from lightkube.models.meta_v1 import ObjectMeta

from opsdk import clock
from opsdk.client import ApiClient
from opsdk.client.finalizers import add_finalizers, remove_finalizers
from opsdk.models import CustomResource, MachineStatus, MachineStatusStruct, Model
from opsdk.protocols import EventType, KubeObject
from opsdk.statemachine import StateCondition, StateHandler, StateMachine, States, Transition
from opsdk.statemachine._pass import memory_key
from opsdk.testing import ApiServer
from opsdk.types import MergePatch, Result

pytestmark = pytest.mark.anyio

AGAIN = Result(requeue_after=timedelta(0))
FINALIZER = "demo.example.com/machine"
OTHER = "demo.example.com/other"


class Spec(Model):
    size: int = 1


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


class Silent:
    async def record(self, obj: KubeObject, /, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's word
        return


@dataclass
class Bench:
    client: ApiClient
    time: clock.ManualClock = field(default_factory=clock.ManualClock)

    async def get(self) -> Widget:
        return await self.client.get(Widget, "w", namespace="default")

    async def one_pass(self, machine: StateMachine[Widget]) -> Result:
        return await machine.reconcile(await self.get())

    async def resize(self, size: int) -> None:
        await self.client.patch(Widget, "w", MergePatch({"spec": {"size": size}}), namespace="default")

    async def delete(self) -> None:
        await self.client.delete(Widget, "w", namespace="default")

    def machine(self, states: States[Widget], deletion_state: str | None = None) -> StateMachine[Widget]:
        return StateMachine(
            Widget,
            self.client,
            "a",
            states,
            event_recorder=Silent(),
            finalizer=None if deletion_state is None else FINALIZER,
            deletion_state=deletion_state,
        )


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    async with ApiServer() as server:
        await server.install(Widget)
        bench = Bench(server.client())
        with clock.using(bench.time):
            await bench.client.create(Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec()))
            yield bench


def is_big(widget: Widget) -> bool:
    return widget.spec.size > 1


class TestTimers:
    async def test_after_is_dwell_time_and_the_pass_schedules_itself_for_it(self, bench: Bench) -> None:
        machine = bench.machine(
            {"a": StateHandler(transitions=[Transition(to="b", after=timedelta(minutes=5))]), "b": StateHandler()}
        )
        assert await bench.one_pass(machine) == AGAIN
        bench.time.advance(timedelta(minutes=2))
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=3))
        bench.time.advance(timedelta(minutes=3))
        assert await bench.one_pass(machine) == AGAIN
        assert (await bench.get()).status.state == "b"

    async def test_with_when_and_after_both_must_hold(self, bench: Bench) -> None:
        machine = bench.machine(
            {
                "a": StateHandler(transitions=[Transition(to="b", when=is_big, after=timedelta(minutes=5))]),
                "b": StateHandler(),
            }
        )
        await bench.one_pass(machine)
        await bench.resize(2)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=5))
        await bench.resize(1)
        bench.time.advance(timedelta(minutes=5))
        assert await bench.one_pass(machine) == Result()  # the time is up; only an event can help
        await bench.resize(2)
        assert await bench.one_pass(machine) == AGAIN

    async def test_the_condition_is_not_asked_before_the_time_is_up(self, bench: Bench) -> None:
        def never_asked(widget: Widget) -> bool:
            raise AssertionError(widget.metadata.name)

        handler = StateHandler[Widget](transitions=[Transition(to="a", when=never_asked, after=timedelta(minutes=5))])
        machine = bench.machine({"a": handler})
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=5))

    async def test_the_sooner_of_hook_and_timer_wins(self, bench: Bench) -> None:
        asked = timedelta(minutes=1)

        async def reconcile(widget: Widget) -> Result:
            return Result(requeue_after=asked * widget.spec.size)

        machine = bench.machine(
            {
                "a": StateHandler(
                    reconcile=reconcile,
                    transitions=[
                        Transition(to="b", after=timedelta(minutes=5)),
                        Transition(to="b", after=timedelta(minutes=3)),
                    ],
                ),
                "b": StateHandler(),
            }
        )
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=1))
        await bench.resize(10)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=3))

    async def test_what_enter_asked_for_is_remembered_by_the_passes_that_follow(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> Result:
            return Result(requeue_after=timedelta(minutes=2 * widget.spec.size))

        machine = bench.machine({"a": StateHandler(enter=enter)})
        assert await bench.one_pass(machine) == AGAIN
        bench.time.advance(timedelta(seconds=30))
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(seconds=90))
        bench.time.advance(timedelta(seconds=90))
        assert await bench.one_pass(machine) == Result()

    async def test_a_restart_does_not_start_dwell_times_over(self, bench: Bench) -> None:
        states: States[Widget] = {
            "a": StateHandler(transitions=[Transition(to="b", after=timedelta(minutes=5))]),
            "b": StateHandler(),
        }
        await bench.one_pass(bench.machine(states))
        bench.time.advance(timedelta(minutes=4))
        assert await bench.one_pass(bench.machine(states)) == Result(requeue_after=timedelta(minutes=1))

    async def test_without_history_dwell_time_counts_from_when_the_object_was_first_seen(self, bench: Bench) -> None:
        states: States[Widget] = {
            "a": StateHandler(transitions=[Transition(to="b", after=timedelta(minutes=5))]),
            "b": StateHandler(),
        }
        machine = bench.machine(states)
        await bench.client.status.patch(Widget, "w", MergePatch({"status": {"state": "a"}}), namespace="default")
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=5))
        bench.time.advance(timedelta(minutes=2))
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(minutes=3))

    async def test_a_timer_is_never_early_though_status_knows_whole_seconds(self, bench: Bench) -> None:
        states: States[Widget] = {
            "a": StateHandler(transitions=[Transition(to="b", after=timedelta(milliseconds=300))]),
            "b": StateHandler(),
        }
        machine = bench.machine(states)
        bench.time.advance(timedelta(milliseconds=900))
        await bench.one_pass(machine)
        bench.time.advance(timedelta(milliseconds=200))
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(milliseconds=100))
        assert (await machine.explain(await bench.get())).transitions[0].remaining == timedelta(milliseconds=100)
        bench.time.advance(timedelta(milliseconds=100))
        assert await bench.one_pass(machine) == AGAIN

    async def test_a_replica_whose_clock_is_ahead_makes_nobody_wait_for_longer(self, bench: Bench) -> None:
        states: States[Widget] = {
            "a": StateHandler(transitions=[Transition(to="b", after=timedelta(minutes=5))]),
            "b": StateHandler(),
        }
        with clock.using(clock.ManualClock(bench.time.now() + timedelta(hours=1))):
            await bench.one_pass(bench.machine(states))
        assert await bench.one_pass(bench.machine(states)) == Result(requeue_after=timedelta(minutes=5))

    async def test_the_end_of_time_is_far_away(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> Result:
            return Result(requeue_after=timedelta.max if widget.spec.size == 1 else None)

        machine = bench.machine({"a": StateHandler(enter=enter, transitions=[Transition(to="a", after=timedelta.max)])})
        await bench.one_pass(machine)
        asked = (await bench.one_pass(machine)).requeue_after
        assert asked is not None
        assert asked > timedelta(days=365 * 1000)

    async def test_objects_without_a_uid_are_not_taken_for_each_other(self) -> None:
        memory = {memory_key(Widget(metadata=ObjectMeta(name=name), spec=Spec())) for name in ("a", "b")}
        assert len(memory) == 2


class TestDeletion:
    async def test_the_finalizer_is_there_before_the_first_entry(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            stored = await bench.get()
            assert stored.metadata.finalizers == [OTHER, FINALIZER]
            assert widget.metadata.finalizers == [OTHER, FINALIZER]

        await add_finalizers(bench.client, await bench.get(), OTHER)
        machine = bench.machine({"a": StateHandler(enter=enter), "bye": StateHandler()}, "bye")
        assert await bench.one_pass(machine) == AGAIN
        assert (await bench.get()).status.state == "a"

    async def test_a_deleted_object_goes_to_the_deletion_state_from_any_other(self, bench: Bench) -> None:
        calls: list[str] = []

        def leave(widget: Widget) -> None:
            calls.append(f"clean up {widget.status.state_history[-1].from_}")

        machine = bench.machine({"a": StateHandler(), "bye": StateHandler(enter=leave)}, "bye")
        await bench.one_pass(machine)
        await bench.delete()
        assert await bench.one_pass(machine) == AGAIN
        assert calls == ["clean up a"]
        assert (await bench.get()).metadata.finalizers == [FINALIZER]
        assert await bench.one_pass(machine) == Result()
        assert await bench.client.find(Widget, "w", namespace="default") is None

    async def test_the_finalizer_stays_until_reconcile_asks_for_no_requeue(self, bench: Bench) -> None:
        answers = [Result(requeue_after=timedelta(seconds=3)), AGAIN, Result()]

        async def reconcile(widget: Widget) -> Result:
            assert widget.metadata.deletionTimestamp is not None
            return answers.pop(0)

        never = Transition[Widget](to="a", after=timedelta(0))
        machine = bench.machine(
            {"a": StateHandler(), "bye": StateHandler(reconcile=reconcile, transitions=[never])}, "bye"
        )
        await bench.one_pass(machine)
        await bench.delete()
        await bench.one_pass(machine)
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(seconds=3))
        assert await bench.one_pass(machine) == AGAIN
        assert await bench.one_pass(machine) == Result()
        assert await bench.client.find(Widget, "w", namespace="default") is None

    async def test_what_its_enter_asked_for_counts_while_the_finalizer_stays(self, bench: Bench) -> None:
        machine = bench.machine(
            {
                "a": StateHandler(),
                "bye": StateHandler(
                    enter=lambda widget: Result(requeue_after=timedelta(seconds=5 * widget.spec.size)),
                    reconcile=lambda widget: Result(requeue_after=timedelta(hours=widget.spec.size)),
                ),
            },
            "bye",
        )
        await bench.one_pass(machine)
        await bench.delete()
        await bench.one_pass(machine)
        bench.time.advance(timedelta(seconds=2))
        assert await bench.one_pass(machine) == Result(requeue_after=timedelta(seconds=3))

    async def test_the_finalizer_stays_while_the_deletion_state_cannot_be_entered(self, bench: Bench) -> None:
        broken = [True]

        def leave(widget: Widget) -> None:
            if broken:
                raise RuntimeError(f"{widget.metadata.name} is stuck")

        machine = bench.machine({"a": StateHandler(), "bye": StateHandler(enter=leave)}, "bye")
        await bench.one_pass(machine)
        await bench.delete()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="w is stuck"):
                await bench.one_pass(machine)
        widget = await bench.get()
        assert (widget.status.pending_entry, widget.metadata.finalizers) == (True, [FINALIZER])
        broken.clear()
        assert await bench.one_pass(machine) == AGAIN
        assert await bench.one_pass(machine) == Result()
        assert await bench.client.find(Widget, "w", namespace="default") is None

    async def test_deletion_leaves_a_pending_entry_behind(self, bench: Bench) -> None:
        async def enter(widget: Widget) -> None:
            raise RuntimeError(widget.metadata.name)

        machine = bench.machine({"a": StateHandler(enter=enter), "bye": StateHandler()}, "bye")
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        await bench.delete()
        assert await bench.one_pass(machine) == AGAIN
        status = (await bench.get()).status
        assert (status.state, status.pending_entry) == ("bye", False)

    async def test_deletion_leaves_an_unknown_state_behind(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler(), "bye": StateHandler()}, "bye")
        await bench.one_pass(machine)
        await bench.client.status.patch(Widget, "w", MergePatch({"status": {"state": "old"}}), namespace="default")
        await bench.delete()
        assert await bench.one_pass(machine) == AGAIN
        assert (await bench.get()).status.state == "bye"

    async def test_o04_other_peoples_finalizers_stand(self, bench: Bench) -> None:
        machine = bench.machine({"a": StateHandler(), "bye": StateHandler()}, "bye")
        await bench.one_pass(machine)
        await add_finalizers(bench.client, await bench.get(), OTHER)
        await bench.delete()
        await bench.one_pass(machine)
        await bench.one_pass(machine)
        assert (await bench.get()).metadata.finalizers == [OTHER]
        assert await bench.one_pass(machine) == Result()  # what is left is not ours
        await remove_finalizers(bench.client, await bench.get(), OTHER)
        assert await bench.client.find(Widget, "w", namespace="default") is None

    async def test_an_object_that_is_deleted_before_its_first_pass_is_left_alone(self, bench: Bench) -> None:
        await add_finalizers(bench.client, await bench.get(), OTHER)
        await bench.delete()
        machine = bench.machine({"a": StateHandler(), "bye": StateHandler()}, "bye")
        assert await bench.one_pass(machine) == Result()
        assert (await bench.get()).status.state == ""

    async def test_without_a_deletion_state_a_deleted_object_is_like_any_other(self, bench: Bench) -> None:
        def marked_for_deletion(widget: Widget) -> bool:
            return widget.metadata.deletionTimestamp is not None

        machine = bench.machine(
            {"a": StateHandler(transitions=[Transition(to="bye", when=marked_for_deletion)]), "bye": StateHandler()}
        )
        await add_finalizers(bench.client, await bench.get(), OTHER)
        await bench.one_pass(machine)
        await bench.delete()
        assert await bench.one_pass(machine) == AGAIN
        widget = await bench.get()
        assert (widget.status.state, widget.metadata.finalizers) == ("bye", [OTHER])


class TestExplaining:
    async def test_it_says_where_the_object_is_and_what_it_waits_for(self, bench: Bench) -> None:
        def broken(widget: Widget) -> bool:
            raise LookupError(widget.metadata.name)

        machine = bench.machine(
            {
                "a": StateHandler(
                    transitions=[
                        Transition(to="b", when=is_big, reason="Grown"),
                        Transition(to="b", when=broken, after=timedelta(hours=1)),
                    ]
                ),
                "b": StateHandler(),
            }
        )
        assert (await machine.explain(await bench.get())).waits_for == "the first pass, which enters 'a'"
        await bench.one_pass(machine)
        bench.time.advance(timedelta(minutes=10))
        told = await machine.explain(await bench.get())
        assert (told.state, told.known, told.pending_entry, told.deleting) == ("a", True, False, False)
        assert told.since == bench.time.now() - timedelta(minutes=10)
        assert [(t.to, t.holds, t.remaining, t.error) for t in told.transitions] == [
            ("b", False, None, ""),
            ("b", None, timedelta(minutes=50), "LookupError: w"),
        ]
        assert str(told).splitlines() == [
            "state 'a' since 2026-01-01T00:00:00+00:00: a transition's condition or time: 'b'",
            "  to 'b' (Grown): its condition does not hold",
            "  to 'b': its condition raised LookupError: w, due in 0:50:00",
        ]
        await bench.resize(2)
        assert (await machine.explain(await bench.get())).waits_for == "the next pass, which goes to 'b'"
        await bench.one_pass(machine)
        assert (await machine.explain(await bench.get())).waits_for == "nothing: no transition leaves it"

    async def test_it_knows_of_pending_entries_unknown_states_and_deletion(self, bench: Bench) -> None:
        def enter(widget: Widget) -> None:
            raise RuntimeError(widget.metadata.name)

        machine = bench.machine({"a": StateHandler(enter=enter), "bye": StateHandler()}, "bye")
        with pytest.raises(RuntimeError):
            await bench.one_pass(machine)
        assert "enter hook has yet to succeed" in (await machine.explain(await bench.get())).waits_for
        await bench.client.status.patch(Widget, "w", MergePatch({"status": {"state": "old"}}), namespace="default")
        told = await machine.explain(await bench.get())
        assert (told.known, told.waits_for) == (False, "somebody to set status.state to one of: a, bye")
        await bench.delete()
        told = await machine.explain(await bench.get())
        assert (told.deleting, told.waits_for) == (True, "being deleted; the next pass enters 'bye'")


class GadgetStatus(MachineStatusStruct, kw_only=True):
    note: str = ""


class Gadget(lightkube_resource.NamespacedResourceG, DictMixin, kw_only=True):
    """A custom resource as an author of lightkube structs writes it."""

    _api_info = lightkube_resource.ApiInfo(
        resource=lightkube_resource.ResourceDef("demo.example.com", "v1", "Gadget"), plural="gadgets", verbs=[]
    )
    apiVersion: str | None = None  # noqa: N815 - Kubernetes' spelling
    kind: str | None = None
    metadata: ObjectMeta | None = None
    status: GadgetStatus = msgspec.field(default_factory=GadgetStatus)

    def get_machine_status(self) -> GadgetStatus:
        return self.status


class GadgetTwin(
    CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1", kind="Gadget", plural="gadgets"
):
    """The same kind as a model, for its CRD."""


class TestStructs:
    async def test_a_machine_drives_structs_too(self, bench: Bench) -> None:
        async with ApiServer() as server:
            await server.install(GadgetTwin)
            client = server.client()
            await client.create(GadgetTwin(metadata=ObjectMeta(name="g", namespace="default"), spec=Spec(size=3)))
            fail = [True]

            async def enter(gadget: Gadget) -> None:
                gadget.status.note = "half done"
                if fail:
                    raise RuntimeError("not yet")

            machine = StateMachine(
                Gadget,
                client,
                "a",
                {
                    "a": StateHandler(
                        enter=enter,
                        conditions=[StateCondition(type="Ready", status="True", reason="In")],
                        transitions=[Transition(to="b", after=timedelta(0), reason="Next")],
                    ),
                    "b": StateHandler(),
                },
                event_recorder=Silent(),
            )

            async def get() -> Gadget:
                return await client.get(Gadget, "g", namespace="default")

            with pytest.raises(RuntimeError, match="not yet"):
                await machine.reconcile(await get())
            status = (await get()).status
            assert (status.state, status.pending_entry, status.note) == ("a", True, "")
            fail.clear()
            for _ in range(3):
                await machine.reconcile(await get())
            status = (await get()).status
            assert [(t.from_, t.to, t.reason) for t in status.state_history] == [("", "a", ""), ("a", "b", "Next")]
            assert (status.state, status.pending_entry, status.observed_generation) == ("b", False, 1)
            assert [(c.type, c.reason) for c in status.conditions] == [("Ready", "In")]
            # The struct knows no spec; writing its status did not touch it.
            assert (await client.get(GadgetTwin, "g", namespace="default")).spec.size == 3
