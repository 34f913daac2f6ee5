"""The simulator and a state machine: `simulate_state`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.protocols import Client
from opsdk.statemachine import StateHandler, StateMachine, Transition
from opsdk.testing.simulator import Simulator
from opsdk.types import Request, Result

pytestmark = pytest.mark.anyio


class ThingSpec(Model):
    size: int = 1


class Thing(CustomResource[ThingSpec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


class Operator:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.calls: list[str] = []
        self.broken = False
        self.machine = StateMachine(
            Thing,
            client,
            "first",
            {
                "first": StateHandler[Thing](
                    enter=self.enter_first, transitions=[Transition(to="second", when=self.never)]
                ),
                "second": StateHandler[Thing](
                    enter=lambda _: self.calls.append("enter second"),
                    reconcile=lambda _: self.calls.append("reconcile second"),
                    transitions=[Transition(to="third", after=timedelta(hours=1))],
                ),
                "third": StateHandler[Thing](terminal=True),
            },
        )

    def enter_first(self, thing: Thing) -> None:
        if self.broken:
            raise KeyError("mine")

    def never(self, thing: Thing) -> bool:
        self.calls.append("asked")
        return False

    async def reconcile(self, request: Request) -> Result:
        return await self.machine.reconcile(await self.client.get(Thing, request.name, namespace=request.namespace))


def broken(client: Client) -> Operator:
    operator = Operator(client)
    operator.broken = True
    return operator


def thing() -> Thing:
    return Thing(metadata=ObjectMeta(name="t"), spec=ThingSpec())


def calls(sim: Simulator) -> list[str]:
    assert isinstance(sim.reconciler, Operator)
    return sim.reconciler.calls


async def test_simulate_state_runs_neither_predicates_nor_enter() -> None:
    async with Simulator(Operator) as sim:
        await sim.create(thing())
        sim.clear()
        await sim.simulate_state("second")
        assert calls(sim) == ["reconcile second"]
        assert not sim.actions


async def test_simulate_state_leaves_an_entry_that_is_pending() -> None:
    async with Simulator(broken) as sim:
        with pytest.raises(KeyError, match="mine"):
            await sim.create(thing())
        assert (await sim.fake_client.get(Thing, "t", namespace="default")).status.pending_entry
        sim.clear()
        await sim.simulate_state("second")
        assert calls(sim) == ["reconcile second"]
        sim.expect_status_update(Thing)  # observedGeneration: the first pass that succeeded


async def test_the_time_in_a_simulated_state_counts_from_then() -> None:
    async with Simulator(Operator) as sim:
        await sim.create(thing())
        sim.advance(timedelta(days=1))
        result = await sim.simulate_state("second")
        assert result.requeue_after == timedelta(hours=1)
        stored = await sim.fake_client.get(Thing, "t", namespace="default")
        assert [(entry.from_, entry.to) for entry in stored.status.state_history] == [
            ("", "first"),
            ("first", "second"),
        ]
        await sim.settle()
        assert (await sim.fake_client.get(Thing, "t", namespace="default")).status.state == "third"
        sim.clear()
