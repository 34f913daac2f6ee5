"""What was driven through a graph, counted and drawn."""

from __future__ import annotations

from datetime import timedelta

import pytest
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.protocols import Client
from opsdk.statemachine import Coverage, Firing, StateHandler, StateMachine, States, Transition
from opsdk.testing import ApiServer, Simulator
from opsdk.types import Request, Result

pytestmark = pytest.mark.anyio


class Spec(Model):
    size: int = 1


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


def is_big(widget: Widget) -> bool:
    return widget.spec.size > 1


STATES: States[Widget] = {
    "a": StateHandler(
        transitions=[
            Transition(to="b", when=is_big, reason="Grown"),
            Transition(to="b", after=timedelta(minutes=5), reason="Waited"),
        ]
    ),
    "b": StateHandler(terminal=True),
    "bye": StateHandler(),
}


def machine_on(client: Client) -> StateMachine[Widget]:
    return StateMachine(Widget, client, "a", STATES, finalizer="demo.example.com/machine", deletion_state="bye")


class Operator:
    def __init__(self, client: Client, coverage: Coverage) -> None:
        self.client = client
        self.machine = machine_on(client)
        self.machine.observe(coverage)

    async def reconcile(self, request: Request, /) -> Result:
        widget = await self.client.find(Widget, request.name, namespace=request.namespace)
        return Result() if widget is None else await self.machine.reconcile(widget)


async def drive(coverage: Coverage, *, size: int, delete: bool = False) -> Widget:
    """The life of one widget in a simulator; what it looks like at the end."""
    async with Simulator(lambda client: Operator(client, coverage)) as sim:
        await sim.create(Widget(metadata=ObjectMeta(name="w"), spec=Spec(size=size)))
        await sim.settle()
        widget = await sim.fake_client.get(Widget, "w", namespace="default")
        if delete:
            await sim.fake_client.delete(Widget, "w", namespace="default")
            await sim.reconcile()
            await sim.settle()
        sim.clear()
    return widget


async def test_a_simulated_run_is_covered_transition_by_transition() -> None:
    coverage = Coverage()
    await drive(coverage, size=2)
    assert coverage.fired == {Firing("", "a", ""): 1, Firing("a", "b", "Grown"): 1}
    graph = machine_on(ApiServer().client()).graph(coverage=coverage)
    assert graph.uncovered == (
        "state 'bye' was never entered",
        "transition 'a' -> 'b' (Waited, after 0:05:00) was never taken",
    )


async def test_runs_add_up_until_nothing_is_missing() -> None:
    together = Coverage()
    for size, delete in ((2, False), (1, True)):
        run = Coverage()
        await drive(run, size=size, delete=delete)
        together.merge(run)
    assert machine_on(ApiServer().client()).graph(coverage=together).uncovered == ()
    assert (together.count("a", "b"), together.count("a", "b", "Grown"), together.count("b", "a")) == (2, 1, 0)
    assert (together.entered("a"), together.entered("bye")) == (2, 1)


async def test_an_objects_history_tells_the_same_as_listening() -> None:
    heard, read = Coverage(), Coverage()
    widget = await drive(heard, size=2)
    read.add_history(widget.status.state_history)
    assert read.fired == heard.fired


def test_coverage_travels_between_processes_as_text() -> None:
    coverage = Coverage({Firing("", "a", ""): 3, Firing("a", "b", "Grown"): 1})
    text = coverage.to_json()
    assert text == ('[{"from":"","to":"a","reason":"","count":3},{"from":"a","to":"b","reason":"Grown","count":1}]')
    assert Coverage.from_json(text).merge(coverage).fired == {Firing("", "a", ""): 6, Firing("a", "b", "Grown"): 2}
    assert repr(coverage) == "<Coverage of 2 transitions, taken 4 times>"
    with pytest.raises(ValueError, match="count"):
        Coverage.from_json('[{"from":"","to":"a","reason":""}]')


def test_without_coverage_everything_is_uncovered() -> None:
    assert len(machine_on(ApiServer().client()).graph().uncovered) == 5


COVERED = Coverage({Firing("", "a", ""): 2, Firing("a", "b", "Grown"): 1})
LIVE = {"a": 7, "unknown": 2, "": 1, "gone": 0}


def test_coverage_and_live_counts_are_laid_over_the_mermaid_diagram() -> None:
    assert machine_on(ApiServer().client()).graph(coverage=COVERED, live=LIVE).mermaid == (
        "stateDiagram-v2\n"
        '    state "a · 7" as s0\n'
        '    state "b · 0" as s1\n'
        '    state "bye · 0" as s2\n'
        '    state "unknown · 2" as x0\n'
        '    state "no state · 1" as x1\n'
        "    [*] --> s0: ×2\n"  # noqa: RUF001 - the sign of multiplication
        "    s0 --> s1: Grown ×1\n"  # noqa: RUF001 - the sign of multiplication
        "    s0 --> s1: Waited, after 0#58;05#58;00 never\n"
        "    s0 --> s2: deleted never\n"
        "    s1 --> s2: deleted never\n"
        "    s1 --> [*]\n"
        "    s2 --> [*]\n"
        "    classDef covered fill:#e6f4ea,stroke:#1e8e3e\n"
        "    classDef uncovered fill:#fce8e6,stroke:#d93025,stroke-dasharray:5\n"
        "    class s0 covered\n"
        "    class s1 covered\n"
        "    class s2 uncovered\n"
    )


def test_coverage_and_live_counts_are_laid_over_the_dot_graph() -> None:
    assert machine_on(ApiServer().client()).graph(coverage=COVERED, live=LIVE).dot == (
        "digraph {\n"
        "    rankdir=LR;\n"
        "    node [shape=box, style=rounded];\n"
        '    "" [shape=point];\n'
        '    "a" [label="a\\n7", color="#1e8e3e"];\n'
        '    "b" [peripheries=2, label="b\\n0", color="#1e8e3e"];\n'
        '    "bye" [peripheries=2, label="bye\\n0", color="#d93025"];\n'
        '    "not in the graph 0" [label="unknown\\n2", style=dotted];\n'
        '    "not in the graph 1" [label="no state\\n1", style=dotted];\n'
        '    "" -> "a" [label="×2", color="#1e8e3e"];\n'  # noqa: RUF001 - the sign of multiplication
        '    "a" -> "b" [label="Grown ×1", color="#1e8e3e"];\n'  # noqa: RUF001 - the sign of multiplication
        '    "a" -> "b" [label="Waited, after 0:05:00 never", color="#d93025"];\n'
        '    "a" -> "bye" [label="deleted never", style=dashed, color="#d93025"];\n'
        '    "b" -> "bye" [label="deleted never", style=dashed, color="#d93025"];\n'
        "}\n"
    )


def test_a_drawn_graph_does_not_change_with_what_comes_later() -> None:
    coverage, live = Coverage(), {"a": 1}
    graph = machine_on(ApiServer().client()).graph(coverage=coverage, live=live)
    coverage.transition("", "a", None, "")
    live["a"] = 5
    assert "never" in graph.mermaid
    assert '"a · 1"' in graph.mermaid
