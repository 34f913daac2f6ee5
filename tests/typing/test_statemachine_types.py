"""What the type checkers must know about state machines. Never run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Literal, TypeAlias, assert_type

from lightkube.core.resource import NamespacedResourceG
from lightkube.core.schema import DictMixin
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment

from opsdk.models import CustomResource, MachineStatus, MachineStatusStruct, Model
from opsdk.protocols import Client, Reconciler
from opsdk.statemachine import (
    Coverage,
    Explanation,
    Firing,
    Graph,
    MachineObserver,
    StateCondition,
    StateHandler,
    StateMachine,
    States,
    Transition,
)
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


Name: TypeAlias = Literal["new", "done"]


def sync_hook(widget: Widget) -> None:
    widget.status.note = "x"


async def async_hook(widget: Widget) -> Result:
    return Result(requeue_after=timedelta(seconds=widget.spec.size))


async def async_hook_without_result(widget: Widget) -> None:
    widget.status.note = "x"


async def gadget_hook(gadget: Gadget) -> Result:
    return Result(requeue_after=timedelta(seconds=gadget.spec.size))


def gadget_is_big(gadget: Gadget) -> bool:
    return gadget.spec.size > 1


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


def literals_name_states(client: Client) -> None:
    states: States[Widget, Name] = {
        "new": StateHandler(transitions=[Transition(to="done", when=lambda widget: widget.spec.size > 1)]),
        "done": StateHandler(terminal=True),
    }
    machine = StateMachine(Widget, client, "new", states, finalizer="a.b/c", deletion_state="done")
    assert_type(machine, StateMachine[Widget])


HOUR = timedelta(hours=1)


def a_transition_to_a_name_outside_of_the_enum_is_refused() -> States[Widget, Phase]:
    return {Phase.NEW: StateHandler(transitions=[Transition(to="nowhere", after=HOUR)])}  # type: ignore[arg-type]  # pyright: ignore[reportReturnType, reportUnknownArgumentType, reportUnknownVariableType]


def a_transition_to_another_enum_is_refused() -> Transition[Widget, Phase]:
    return Transition(to=Other.NEW, after=HOUR)  # type: ignore[arg-type]  # pyright: ignore[reportReturnType, reportUnknownVariableType]


def a_transition_to_a_name_outside_of_the_literals_is_refused() -> States[Widget, Name]:
    return {"new": StateHandler(transitions=[Transition(to="nowhere", after=HOUR)])}  # type: ignore[arg-type]  # pyright: ignore[reportReturnType, reportUnknownArgumentType, reportUnknownVariableType]


def a_state_outside_of_the_literals_is_refused() -> States[Widget, Name]:
    return {"nowhere": StateHandler()}  # type: ignore[dict-item]  # pyright: ignore[reportReturnType]


def initial_and_deletion_states_are_names_of_the_graph(
    client: Client, states: States[Widget, Phase], named: States[Widget, Name]
) -> None:
    StateMachine(Widget, client, "nowhere", states)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    StateMachine(Widget, client, "nowhere", named)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    StateMachine(Widget, client, Other.NEW, states)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    StateMachine(Widget, client, Phase.NEW, states, finalizer="a.b/c", deletion_state="nowhere")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    StateMachine(Widget, client, "new", named, finalizer="a.b/c", deletion_state="nowhere")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]


def a_predicate_in_a_graph_takes_the_machines_objects() -> States[Widget]:
    return {"new": StateHandler(transitions=[Transition(to="new", when=gadget_is_big)])}  # type: ignore[arg-type]  # pyright: ignore[reportReturnType]


def an_enter_hook_in_a_graph_takes_the_machines_objects() -> States[Widget]:
    return {"new": StateHandler(enter=gadget_hook)}  # type: ignore[arg-type]  # pyright: ignore[reportReturnType, reportUnknownVariableType]


def a_reconcile_hook_in_a_graph_returns_a_result() -> States[Widget]:
    return {"new": StateHandler(reconcile=text_hook)}  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportUnknownVariableType]


def a_lambda_in_a_graph_knows_the_objects_class() -> States[Widget]:
    return {"new": StateHandler(transitions=[Transition(to="new", when=lambda it: it.spec.no_such_thing)])}  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]


def conditions_have_a_status_of_the_api() -> None:
    StateCondition(type="Ready", status="true", reason="R")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    StateCondition(type="Ready", status=True, reason="R")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def graphs_of_another_kind_are_refused(client: Client, states: States[Gadget]) -> None:
    StateMachine(Widget, client, "new", states)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]


async def a_machine_takes_its_own_objects(machine: StateMachine[Widget], gadget: Gadget) -> None:
    await machine.reconcile(gadget)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await machine.explain(gadget)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def coverage_listens_and_is_drawn(machine: StateMachine[Widget], coverage: Coverage) -> None:
    observer: MachineObserver = coverage
    machine.observe(observer)
    assert_type(machine.graph(coverage=coverage, live={"new": 1}).uncovered, tuple[str, ...])
    assert_type(Coverage.from_json(coverage.to_json()).merge(coverage), Coverage)
    assert_type(coverage.fired, Mapping[Firing, int])


class GadgetStructStatus(MachineStatusStruct, kw_only=True):
    note: str = ""


class GadgetStruct(NamespacedResourceG, DictMixin, kw_only=True):
    metadata: ObjectMeta | None = None
    status: GadgetStructStatus | None = None

    def get_machine_status(self) -> GadgetStructStatus:
        self.status = self.status or GadgetStructStatus()
        return self.status


def structs_have_machines_too(client: Client) -> None:
    states: States[GadgetStruct] = {
        "new": StateHandler(transitions=[Transition(to="new", when=lambda it: it.get_machine_status().note == "x")]),
    }
    assert_type(StateMachine(GadgetStruct, client, "new", states), StateMachine[GadgetStruct])
