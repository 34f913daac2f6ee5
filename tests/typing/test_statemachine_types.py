"""What the type checkers must know about state machines. Never run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import assert_type

from lightkube.resources.apps_v1 import Deployment

from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.protocols import Client, Reconciler
from opsdk.statemachine import Explanation, Graph, StateHandler, StateMachine, States, Transition
from opsdk.types import Request, Result


class Spec(Model):
    size: int = 1


class Status(MachineStatus):
    note: str = ""


class Widget(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> Status:
        return self.status


class Gadget(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> Status:
        return self.status


class Phase(StrEnum):
    NEW = "new"
    DONE = "done"


class Other(StrEnum):
    NEW = "new"


def sync_hook(widget: Widget) -> None:
    widget.status.note = "x"


async def async_hook(widget: Widget) -> Result:
    return Result(requeue_after=timedelta(seconds=widget.spec.size))


async def async_hook_without_result(widget: Widget) -> None:
    widget.status.note = "x"


async def gadget_hook(gadget: Gadget) -> Result:
    return Result(requeue_after=timedelta(seconds=gadget.spec.size))


def text_hook(widget: Widget) -> str:
    return widget.status.note


class Raw:
    async def reconcile(self, request: Request, /) -> Result:
        return Result(requeue_after=None if request.namespace else timedelta(0))


async def states_are_keyed_by_str_unless_told_otherwise(client: Client) -> None:
    states: States[Widget] = {
        "new": StateHandler(
            enter=sync_hook,
            reconcile=async_hook,
            transitions=[
                Transition(to="done", when=lambda widget: widget.spec.size > 1),
                Transition(to="done", after=timedelta(minutes=1)),
            ],
        ),
        "done": StateHandler(enter=async_hook_without_result, reconcile=Raw(), terminal=True),
    }
    plain: Mapping[str, StateHandler[Widget]] = states
    machine = StateMachine(Widget, client, "new", plain)
    assert_type(machine, StateMachine[Widget])
    assert_type(machine.kind, type[Widget])
    assert_type(machine.client, Client)
    assert_type(machine.graph(), Graph)
    assert_type(machine.check(), tuple[str, ...])
    widget = await client.get(Widget, "w", namespace="default")
    assert_type(await machine.reconcile(widget), Result)
    assert_type(await machine.explain(widget), Explanation)


def enums_name_states(client: Client) -> None:
    states: States[Widget, Phase] = {
        Phase.NEW: StateHandler(transitions=[Transition(to=Phase.DONE, when=lambda widget: widget.spec.size > 1)]),
        Phase.DONE: StateHandler(),
    }
    machine = StateMachine(Widget, client, Phase.NEW, states, finalizer="a.b/c", deletion_state=Phase.DONE)
    assert_type(machine, StateMachine[Widget])


def enums_are_not_mixed() -> None:
    wrong_key: States[Widget, Phase] = {
        Other.NEW: StateHandler(),  # type: ignore[dict-item]  # pyright: ignore[reportAssignmentType]
    }
    assert wrong_key


def transitions_lead_to_names_of_the_graph(handler: StateHandler[Widget, Other]) -> None:
    wrong_target: States[Widget, Phase] = {
        Phase.NEW: handler,  # type: ignore[dict-item]  # pyright: ignore[reportAssignmentType]
    }
    assert wrong_target


def hooks_take_the_machines_objects() -> None:
    StateHandler[Widget](enter=gadget_hook)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    StateHandler[Widget](reconcile=text_hook)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Transition[Widget](to="x", when=text_hook)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def objects_without_a_machine_status_are_refused(client: Client) -> None:
    StateMachine(Deployment, client, "new", {})  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


def a_raw_reconciler_is_a_hook(raw: Reconciler) -> None:
    handler: StateHandler[Widget] = StateHandler(reconcile=raw)
    assert_type(handler, StateHandler[Widget])
