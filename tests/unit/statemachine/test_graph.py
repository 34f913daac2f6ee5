"""What is refused at construction, what is warned about, and what a graph looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum, StrEnum
from typing import cast

import pytest
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.core.schema import DictMixin
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.client import ApiClient
from opsdk.errors import InvalidStateMachineError
from opsdk.models import CustomResource, MachineStatus, MachineStatusStruct, Model
from opsdk.statemachine import (
    Hook,
    Predicate,
    StateCondition,
    StateEvent,
    StateHandler,
    StateMachine,
    States,
    Transition,
)
from opsdk.testing import ApiServer
from opsdk.types import ConditionStatus, Result


class Spec(Model):
    size: int = 1


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


class Phase(StrEnum):
    NEW = "new"
    DONE = "done"


def client() -> ApiClient:
    return ApiServer().client()


def is_big(widget: Widget) -> bool:
    return widget.spec.size > 1


def machine(states: States[Widget], initial: str = "a", deletion_state: str | None = None) -> StateMachine[Widget]:
    finalizer = None if deletion_state is None else "demo.example.com/machine"
    return StateMachine(Widget, client(), initial, states, finalizer=finalizer, deletion_state=deletion_state)


def to(*targets: str) -> StateHandler[Widget]:
    return StateHandler(transitions=[Transition(to=target, when=is_big) for target in targets])


ONE: States[Widget] = {"a": StateHandler()}


@pytest.mark.parametrize(
    ("initial", "states", "fault"),
    [
        ("a", {}, "states: there are none"),
        ("b", ONE, "initial: 'b' is not one of the states (a)"),
        ("a", {"a": to("nowhere")}, "state 'a': transitions[0].to: 'nowhere' is not one of the states (a)"),
        (
            "a",
            {"a": StateHandler[Widget](conditions=[StateCondition(type="", status="True", reason="R")])},
            "state 'a': conditions[0].type: is empty",
        ),
        (
            "a",
            {"a": StateHandler[Widget](conditions=[StateCondition(type="no good", status="True", reason="R")])},
            "state 'a': conditions[0].type: 'no good' is not a condition type",
        ),
        (
            "a",
            {"a": StateHandler[Widget](conditions=[StateCondition(type="Ready", status="True", reason="")])},
            "state 'a': conditions[0].reason: is empty",
        ),
        (
            "a",
            {"a": StateHandler[Widget](conditions=[StateCondition(type="Ready", status="True", reason="two words")])},
            "state 'a': conditions[0].reason: 'two words' is not one CamelCase word",
        ),
        (
            "a",
            {
                "a": StateHandler[Widget](
                    conditions=[StateCondition(type="Ready", status=cast("ConditionStatus", "true"), reason="R")]
                )
            },
            "state 'a': conditions[0].status: 'true' is none of 'True', 'False', 'Unknown'",
        ),
        (
            "a",
            {
                "a": StateHandler[Widget](
                    conditions=[StateCondition(type="Ready", status="True", reason="R", message="x" * 32_769)]
                )
            },
            "state 'a': conditions[0].message: has 32769 characters, more than 32768",
        ),
        (
            "a",
            {"a": StateHandler[Widget](conditions=[StateCondition(type="Ready", status="True", reason="R")] * 2)},
            "state 'a': conditions[1].type: 'Ready' is listed twice",
        ),
        ("a", {"a": StateHandler[Widget](event=StateEvent(reason=""))}, "state 'a': event.reason: is empty"),
        (
            "a",
            {"a": StateHandler[Widget](failure_event=StateEvent(reason=""))},
            "state 'a': failure_event.reason: is empty",
        ),
        (
            "a",
            {"a": StateHandler[Widget](transitions=[Transition(to="a")])},
            "state 'a': transitions[0]: has neither `when` nor `after`",
        ),
        (
            "a",
            {"a": StateHandler[Widget](transitions=[Transition(to="a", after=timedelta(seconds=-1))])},
            "state 'a': transitions[0].after: -1 day, 23:59:59 is negative",
        ),
        (
            "a",
            {"a": StateHandler[Widget](timeout=timedelta(0))},
            "state 'a': timeout: 0:00:00 leaves the hooks no time",
        ),
        ("a", {"a": StateHandler[Widget](), "": StateHandler[Widget]()}, "states: a state has an empty name"),
    ],
)
def test_a_fault_is_named_by_state_and_field(initial: str, states: States[Widget], fault: str) -> None:
    with pytest.raises(InvalidStateMachineError) as raised:
        StateMachine(Widget, client(), initial, states)
    assert any(text.startswith(fault) for text in raised.value.faults), raised.value.faults
    assert len(raised.value.faults) == (2 if not states else 1)


class Plain(Enum):
    A = 1


def handler(**fields: object) -> dict[str, object]:
    return {"a": cast("Callable[..., StateHandler[Widget]]", StateHandler)(**fields)}


def transition(**fields: object) -> dict[str, object]:
    return handler(transitions=[cast("Callable[..., Transition[Widget]]", Transition)(**{"to": "a", **fields})])


def condition(**fields: object) -> dict[str, object]:
    values: dict[str, object] = {"type": "Ready", "status": "True", "reason": "R", **fields}
    return handler(conditions=[cast("Callable[..., StateCondition]", StateCondition)(**values)])


def event(**fields: object) -> dict[str, object]:
    return handler(event=cast("Callable[..., StateEvent]", StateEvent)(**{"reason": "R", **fields}))


WRONG_TYPES: list[tuple[object, str]] = [
    (["a"], "states: ['a'] is a list; give a dict of StateHandlers by the names of the states"),
    (None, "states: is None; give a dict of StateHandlers by the names of the states"),
    ({"a": None}, "state 'a': is None; give a StateHandler"),
    ({"a": {}}, "state 'a': {} is a dict; give a StateHandler"),
    ({"a": to("a"), Plain.A: to("a")}, "states: <Plain.A: 1> is a Plain; give a text or a member of"),
    (transition(after=5), "state 'a': transitions[0].after: 5 is an int; give a timedelta"),
    (transition(when="x"), "state 'a': transitions[0].when: 'x' is a str; give a function that takes the object"),
    (transition(to=Plain.A, when=is_big), "state 'a': transitions[0].to: <Plain.A: 1> is a Plain; give a text"),
    (transition(to=[], when=is_big), "state 'a': transitions[0].to: [] is a list; give a text"),
    (transition(when=is_big, reason=5), "state 'a': transitions[0].reason: 5 is an int; give a text"),
    (handler(timeout="5s"), "state 'a': timeout: '5s' is a str; give a timedelta"),
    (handler(transitions=Transition[Widget](to="a", when=is_big)), "state 'a': transitions: Transition(to='a', "),
    (handler(transitions="abc"), "state 'a': transitions: 'abc' is a str; give a list of them"),
    (handler(transitions=["a"]), "state 'a': transitions[0]: 'a' is a str; give a Transition"),
    (handler(conditions=None), "state 'a': conditions: is None; give a list of them"),
    (handler(conditions=["Ready"]), "state 'a': conditions[0]: 'Ready' is a str; give a StateCondition"),
    (handler(event="Started"), "state 'a': event: 'Started' is a str; give a StateEvent"),
    (handler(enter=5), "state 'a': enter: 5 is an int; give a function that takes the object"),
    (
        handler(reconcile=5),
        "state 'a': reconcile: 5 is an int; give a function that takes the object, or an object with a method",
    ),
    (condition(status=True), "state 'a': conditions[0].status: True is none of 'True', 'False', 'Unknown'"),
    (condition(type=[]), "state 'a': conditions[0].type: [] is a list; give a text"),
    (condition(reason=5), "state 'a': conditions[0].reason: 5 is an int; give a text"),
    (condition(message=5), "state 'a': conditions[0].message: 5 is an int; give a text"),
    (event(type="Bad"), "state 'a': event.type: 'Bad' is none of 'Normal', 'Warning'"),
    (event(message=None), "state 'a': event.message: is None; give a text"),
    (
        {"a": to("a"), "x" * 5000: None},
        f"state '{'x' * 100}…': is None",
    ),
]


@pytest.mark.parametrize(("states", "fault"), WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_named_by_state_and_field(states: object, fault: str) -> None:
    with pytest.raises(InvalidStateMachineError) as raised:
        StateMachine(Widget, client(), "a", cast("States[Widget]", states))
    (text,) = raised.value.faults
    assert text.startswith(fault)
    assert len(text) < 400


def test_options_of_the_wrong_type_are_named_too() -> None:
    machine = cast("Callable[..., StateMachine[Widget]]", StateMachine)
    with pytest.raises(InvalidStateMachineError) as raised:
        machine(Widget, client(), Plain.A, ONE, max_history="a", finalizer=5, deletion_state=Plain.A)
    assert raised.value.faults == (
        "initial: <Plain.A: 1> is a Plain; give a text or a member of a StrEnum",
        "deletion_state: <Plain.A: 1> is a Plain; give a text or a member of a StrEnum",
        "max_history: 'a' is a str; give a whole number",
        "finalizer: 5 is an int; give a text of the form domain/name",
    )


def test_a_result_wants_a_timedelta() -> None:
    result = cast("Callable[..., Result]", Result)
    with pytest.raises(TypeError, match="requeue_after: 5 is of type int; give a timedelta"):
        result(requeue_after=5)


def test_all_faults_come_in_one_error() -> None:
    with pytest.raises(InvalidStateMachineError) as raised:
        StateMachine(Widget, client(), "b", {"a": to("c")}, max_history=0, finalizer="x", deletion_state="d")
    fields = [fault.split(":")[0] for fault in raised.value.faults]
    assert fields == ["initial", "state 'a'", "deletion_state", "max_history", "finalizer"]
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(("finalizer", "deletion_state"), [("demo.example.com/x", None), (None, "a")])
def test_a_finalizer_and_a_deletion_state_go_together(finalizer: str | None, deletion_state: str | None) -> None:
    with pytest.raises(InvalidStateMachineError, match="give both or neither"):
        StateMachine(Widget, client(), "a", ONE, finalizer=finalizer, deletion_state=deletion_state)


def test_a_class_that_is_no_kind_is_refused() -> None:
    class Nothing:
        metadata = ObjectMeta()

        def get_machine_status(self) -> MachineStatus:
            return MachineStatus()

    with pytest.raises(InvalidStateMachineError, match="kind: "):
        StateMachine(Nothing, client(), "a", {"a": StateHandler()})


class Bare(CustomResource[Spec], group="demo.example.com", version="v1"):
    """A kind without a status subresource."""

    def get_machine_status(self) -> MachineStatus:
        return MachineStatus()


class BareStruct(NamespacedResourceG, DictMixin, kw_only=True):
    _api_info = ApiInfo(resource=ResourceDef("demo.example.com", "v1", "BareStruct"), plural="barestructs", verbs=[])
    metadata: ObjectMeta | None = None

    def get_machine_status(self) -> MachineStatusStruct:
        return MachineStatusStruct()


def test_a_kind_without_status_is_refused_where_its_class_says_so() -> None:
    with pytest.raises(InvalidStateMachineError, match="kind: Bare has no status, so its kind has no status subres"):
        StateMachine(Bare, client(), "a", {"a": StateHandler()})
    with pytest.raises(InvalidStateMachineError, match="kind: BareStruct has no status"):
        StateMachine(BareStruct, client(), "a", {"a": StateHandler()})


def test_a_sound_graph_has_no_warnings() -> None:
    assert machine({"a": to("b"), "b": StateHandler(terminal=True)}).check() == ()


@pytest.mark.parametrize(
    ("states", "deletion_state", "warning"),
    [
        ({"a": to("b"), "b": to("a"), "c": to("a")}, None, "state 'c' cannot be reached from 'a'"),
        ({"a": to("b"), "b": StateHandler[Widget]()}, None, "state 'b' is never left; mark it with terminal=True"),
        (
            {
                "a": StateHandler[Widget](terminal=True, transitions=[Transition(to="b", when=is_big)]),
                "b": StateHandler[Widget](terminal=True),
            },
            None,
            "state 'a' is marked terminal and has transitions",
        ),
        ({"a": to("a")}, None, "state 'a' is never left; mark it with terminal=True"),
        (
            {
                "a": to("stuck", "deleting"),
                "stuck": StateHandler[Widget](terminal=True),
                "deleting": StateHandler[Widget](terminal=True),
            },
            None,
            "deletion (deleting) cannot be reached from state 'stuck'",
        ),
        (
            {"a": to("b"), "b": to("a"), "bye": to("a")},
            "bye",
            "state 'bye' is the deletion state; its transitions are not taken",
        ),
        ({"a": StateHandler[Widget]()}, "a", "state 'a' is both the initial and the deletion state"),
    ],
)
def test_what_looks_like_a_mistake_is_warned_about(
    states: States[Widget], deletion_state: str | None, warning: str
) -> None:
    (found,) = machine(states, deletion_state=deletion_state).check()
    assert found.startswith(warning)


def test_a_deletion_state_is_reached_and_left_without_transitions() -> None:
    assert machine({"a": to("b"), "b": to("a"), "bye": StateHandler()}, deletion_state="bye").check() == ()


def test_a_state_may_be_entered_again_and_again_if_that_is_where_objects_are_meant_to_stay() -> None:
    hourly = Transition[Widget](to="a", after=timedelta(hours=1))
    assert machine({"a": StateHandler(terminal=True, transitions=[hourly])}).check() == ()


def test_the_graph_is_drawn_in_mermaid() -> None:
    states: States[Widget] = {
        "a": StateHandler(
            transitions=[
                Transition(to="b", when=is_big, reason="Grown"),
                Transition(to="b", when=is_big, after=timedelta(minutes=5)),
            ]
        ),
        "b": StateHandler(terminal=True),
        "bye": StateHandler(),
    }
    assert machine(states, deletion_state="bye").graph().mermaid == (
        "stateDiagram-v2\n"
        '    state "a" as s0\n'
        '    state "b" as s1\n'
        '    state "bye" as s2\n'
        "    [*] --> s0\n"
        "    s0 --> s1: Grown\n"
        "    s0 --> s1: is_big, after 0#58;05#58;00\n"
        "    s0 --> s2: deleted\n"
        "    s1 --> s2: deleted\n"
        "    s1 --> [*]\n"
        "    s2 --> [*]\n"
    )


def test_the_graph_is_drawn_in_dot() -> None:
    states: States[Widget] = {'a "b"': to("c"), "c": StateHandler(terminal=True)}
    assert machine(states, 'a "b"').graph().dot == (
        "digraph {\n"
        "    rankdir=LR;\n"
        "    node [shape=box, style=rounded];\n"
        '    "" [shape=point];\n'
        '    "a \\"b\\"";\n'
        '    "c" [peripheries=2];\n'
        '    "" -> "a \\"b\\"";\n'
        '    "a \\"b\\"" -> "c" [label="is_big"];\n'
        "}\n"
    )


def test_states_may_be_the_members_of_an_enum() -> None:
    states: States[Widget, Phase] = {
        Phase.NEW: StateHandler(transitions=[Transition(to=Phase.DONE, when=is_big)]),
        Phase.DONE: StateHandler(terminal=True),
    }
    built = StateMachine(Widget, client(), Phase.NEW, states)
    assert built.states == ("new", "done")
    assert all(type(name) is str for name in built.states)
    assert [type(edge.target) for edge in built.graph().edges] == [str]
    assert built.check() == ()


def test_hooks_predicates_and_handlers_are_ordinary_values() -> None:
    hook: Hook[Widget] = lambda widget: None  # noqa: E731, ARG005 - what is tested
    predicate: Predicate[Widget] = is_big
    transitions: Sequence[Transition[Widget]] = (Transition(to="a", when=predicate),)
    states: Mapping[str, StateHandler[Widget]] = {"a": StateHandler(enter=hook, transitions=transitions)}
    assert machine(states).states == ("a",)


def test_faults_name_members_of_enums_by_their_values() -> None:
    states: States[Widget, Phase] = {Phase.NEW: StateHandler(transitions=[Transition(to=Phase.DONE, when=is_big)])}
    with pytest.raises(InvalidStateMachineError) as raised:
        StateMachine(Widget, client(), Phase.DONE, states)
    assert raised.value.faults == (
        "initial: 'done' is not one of the states (new)",
        "state 'new': transitions[0].to: 'done' is not one of the states (new)",
    )
