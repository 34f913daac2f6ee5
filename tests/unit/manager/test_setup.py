"""`setup` and `for_state_machine`: what an operator shows of its objects."""

from __future__ import annotations

import anyio
import pytest
from lightkube.models.core_v1 import NamespaceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Namespace

from opsdk.events import Recorder
from opsdk.manager import Manager, ManagerOptions, for_state_machine, setup
from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.protocols import MachineStatusView
from opsdk.statemachine import StateEvent, StateHandler, StateMachine, States, Transition
from opsdk.testing import ApiServer
from opsdk.types import Request, Result

pytestmark = pytest.mark.anyio

ALONE = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)


class GadgetSpec(Model):
    ready: bool = False


class Gadget(CustomResource[GadgetSpec, MachineStatus], group="demo.example.com", version="v1"):
    """A thing with a state."""

    def get_machine_status(self) -> MachineStatus:
        return self.status


class WrappedStatus(Model):
    machine: MachineStatus = MachineStatus()


class Wrapped(CustomResource[GadgetSpec, WrappedStatus], group="demo.example.com", version="v1"):
    """A thing whose state is not where it usually is."""

    def get_machine_status(self) -> MachineStatusView:
        return self.status.machine


STATES: States[Gadget] = {
    "new": StateHandler(
        event=StateEvent(reason="Made", message="it is there"),
        transitions=[Transition(to="running", when=lambda gadget: gadget.spec.ready)],
    ),
    "running": StateHandler(),
}


class Operator:
    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.machine = StateMachine(Gadget, manager.client, "new", STATES)

    async def reconcile(self, request: Request, /) -> Result:
        gadget = await self.client.find(Gadget, request.name, namespace=request.namespace)
        return Result() if gadget is None else await self.machine.reconcile(gadget)


def value(manager: Manager, name: str, /, **labels: str) -> float | None:
    return manager.metrics.registry.get_sample_value(name, {key.rstrip("_"): label for key, label in labels.items()})


async def test_a_state_machine_is_metered_and_its_objects_are_counted() -> None:
    async with ApiServer() as server:
        await server.install(Gadget)
        manager = Manager(ALONE, client=server.client())
        operator = Operator(manager)
        setup(manager, for_state_machine(operator.machine))
        manager.controller(Gadget).complete(operator)
        client = server.client()
        for number in range(3):
            await client.create(
                Gadget(
                    metadata=ObjectMeta(name=f"g{number}", namespace="default", finalizers=["test/stay"]),
                    spec=GadgetSpec(ready=number == 0),
                )
            )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(5)
            assert value(manager, "opsdk_objects", kind="Gadget", state="running") == 1
            assert value(manager, "opsdk_objects", kind="Gadget", state="new") == 2
            assert value(manager, "opsdk_generation_lag_objects", kind="Gadget") == 0
            assert value(manager, "opsdk_state_transitions_total", kind="Gadget", from_="", to="new") == 3
            assert value(manager, "opsdk_state_transitions_total", kind="Gadget", from_="new", to="running") == 1
            assert value(manager, "opsdk_state_dwell_seconds_count", kind="Gadget", state="new") == 1

            await client.delete(Gadget, "g1", namespace="default")
            await anyio.sleep(5)
            assert value(manager, "opsdk_deletion_backlog_objects", kind="Gadget") == 1
            manager.stop()
        reasons = {event.reason for event in await client.list(Event, namespace="default")}
        assert "Made" in reasons


async def test_events_go_through_the_managers_recorder_unless_the_machine_has_its_own() -> None:
    async with ApiServer() as server:
        await server.install(Gadget)
        manager = Manager(ALONE, client=server.client())
        own = Recorder(server.client(), component="my-own")
        without = StateMachine(Gadget, manager.client, "new", STATES)
        with_own = StateMachine(Gadget, manager.client, "new", STATES, event_recorder=own)
        setup(manager, for_state_machine(without), for_state_machine(with_own))
        client = server.client()
        for name, machine in (("a", without), ("b", with_own)):
            gadget = await client.create(Gadget(metadata=ObjectMeta(name=name, namespace="default"), spec=GadgetSpec()))
            await machine.reconcile(gadget)
        events = await client.list(Event, namespace="default")
        assert {event.involvedObject.name: event.reportingComponent for event in events} == {
            "a": "opsdk",
            "b": "my-own",
        }


async def test_a_state_that_lives_elsewhere_in_status_is_counted_too() -> None:
    states: States[Wrapped] = {"new": StateHandler(), "running": StateHandler()}
    async with ApiServer() as server:
        await server.install(Wrapped)
        client = server.client()
        manager = Manager(ALONE, client=client)
        setup(manager, for_state_machine(StateMachine(Wrapped, manager.client, "new", states)))
        stored = await client.create(Wrapped(metadata=ObjectMeta(name="w", namespace="default"), spec=GadgetSpec()))
        base = client.snapshot(stored)
        stored.status.machine.state = "running"
        await client.status.patch_from(base, stored)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(5)
            assert value(manager, "opsdk_objects", kind="Wrapped", state="running") == 1
            assert value(manager, "opsdk_generation_lag_objects", kind="Wrapped") == 1
            await client.delete(Wrapped, "w", namespace="default")
            await anyio.sleep(5)
            assert value(manager, "opsdk_objects", kind="Wrapped", state="running") == 0
            manager.stop()


async def test_only_the_watched_namespaces_are_counted() -> None:
    async with ApiServer() as server:
        await server.install(Gadget)
        client = server.client()
        await client.create(Namespace(metadata=ObjectMeta(name="blue"), spec=NamespaceSpec()))
        for namespace in ("blue", "default"):
            await client.create(Gadget(metadata=ObjectMeta(name="g", namespace=namespace), spec=GadgetSpec()))
        manager = Manager(
            ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False, namespaces=("blue",)),
            client=client,
        )
        setup(manager, for_state_machine(StateMachine(Gadget, manager.client, "new", STATES)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(5)
            assert value(manager, "opsdk_objects", kind="Gadget", state="unknown") == 1
            manager.stop()
