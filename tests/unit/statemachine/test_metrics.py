"""What a manager's metrics say about a state machine and its objects, from reconciles and caches that are real."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta

from opsdk import clock
from opsdk.client import ApiClient
from opsdk.manager import Manager, ManagerOptions, for_state_machine, setup
from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.statemachine import Coverage, StateHandler, StateMachine, States, Transition
from opsdk.testing import ApiServer, VirtualClock
from opsdk.types import MergePatch, Request, Result

pytestmark = pytest.mark.anyio

KIND = "Widget"
ALONE = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)


class Spec(Model):
    size: int = 1
    trouble: str = ""


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


async def work(widget: Widget) -> Result:
    await anyio.sleep(0.25)
    match widget.spec.trouble:
        case "world":
            raise OSError("no network")
        case "program":
            raise KeyError("a mistake")
        case _:
            return Result(requeue_after=timedelta(hours=1) if widget.metadata.deletionTimestamp else None)


STATES: States[Widget] = {
    "small": StateHandler(
        reconcile=work, transitions=[Transition(to="big", when=lambda widget: widget.spec.size > 1, reason="Grown")]
    ),
    "big": StateHandler(reconcile=work),
    "bye": StateHandler(reconcile=work),
}


class Operator:
    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.machine = StateMachine(
            Widget, manager.client, "small", STATES, finalizer="demo.example.com/x", deletion_state="bye"
        )

    async def reconcile(self, request: Request, /) -> Result:
        widget = await self.client.find(Widget, request.name, namespace=request.namespace)
        return Result() if widget is None else await self.machine.reconcile(widget)


class Scrape:
    """What a Prometheus server sees, by name and labels."""

    def __init__(self, manager: Manager) -> None:
        self._samples: dict[str, float] = {}
        for line in manager.metrics.exposition().decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                self._samples[name] = float(value)

    def __call__(self, name: str) -> float | None:
        return self._samples.get(name)


class World:
    def __init__(self, client: ApiClient, manager: Manager, operator: Operator) -> None:
        self.client = client
        self.manager = manager
        self.operator = operator

    async def create(self, *names: str) -> None:
        for name in names:
            await self.client.create(Widget(metadata=ObjectMeta(name=name, namespace="default"), spec=Spec()))

    async def change(self, name: str, size: int = 1, trouble: str = "") -> None:
        patch = MergePatch({"spec": {"size": size, "trouble": trouble}})
        await self.client.patch(Widget, name, patch, namespace="default")

    async def scrape(self) -> Scrape:
        """After everybody has done what they had to do."""
        await anyio.sleep(30)
        return Scrape(self.manager)


@asynccontextmanager
async def running() -> AsyncGenerator[World]:
    async with ApiServer() as server:
        with clock.using(VirtualClock()):
            await server.install(Widget)
            manager = Manager(ALONE, client=server.client())
            operator = Operator(manager)
            setup(manager, for_state_machine(operator.machine))
            manager.controller(Widget).complete(operator)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(manager.start)
                yield World(server.client(), manager, operator)
                manager.stop()


async def test_before_there_is_any_object_all_results_and_states_stand_at_zero() -> None:
    async with running() as world:
        scrape = await world.scrape()
        for result in ("success", "requeue", "requeue_after", "error"):
            assert scrape(f'opsdk_state_machine_passes_total{{kind="Widget",result="{result}"}}') == 0
        for state in STATES:
            assert scrape(f'opsdk_objects{{kind="Widget",state="{state}"}}') == 0
        assert scrape('opsdk_panics_total{kind="Widget"}') == 0
        assert scrape('opsdk_generation_lag_objects{kind="Widget"}') == 0
        assert scrape('opsdk_deletion_backlog_objects{kind="Widget"}') == 0


async def test_throughput_latency_transitions_and_dwell_times() -> None:
    async with running() as world:
        await world.create("a", "b")
        await world.scrape()
        await world.change("a", size=2)
        scrape = await world.scrape()
        assert scrape('opsdk_state_machine_passes_total{kind="Widget",result="requeue"}') == 3  # the transitions
        done = scrape('opsdk_state_machine_passes_total{kind="Widget",result="success"}')
        assert done is not None
        assert done >= 3  # a reconcile after each
        assert scrape('opsdk_state_machine_pass_seconds_count{kind="Widget"}') == done + 3
        assert scrape('opsdk_state_machine_pass_seconds_sum{kind="Widget"}') == pytest.approx(done * 0.25)
        assert scrape('opsdk_state_transitions_total{from="",kind="Widget",to="small"}') == 2
        assert scrape('opsdk_state_transitions_total{from="small",kind="Widget",to="big"}') == 1
        assert scrape('opsdk_state_dwell_seconds_count{kind="Widget",state="small"}') == 1
        dwell = scrape('opsdk_state_dwell_seconds_sum{kind="Widget",state="small"}')
        assert dwell is not None
        assert 29 < dwell < 32
        assert scrape('opsdk_objects{kind="Widget",state="small"}') == 1
        assert scrape('opsdk_objects{kind="Widget",state="big"}') == 1


async def test_failures_panics_and_the_lag_that_they_cause() -> None:
    async with running() as world:
        await world.create("a", "b", "c")
        await world.scrape()
        await world.change("a", trouble="world")
        scrape = await world.scrape()
        errors = scrape('opsdk_state_machine_passes_total{kind="Widget",result="error"}')
        assert errors is not None
        assert errors >= 3  # it is tried again and again
        assert scrape('opsdk_panics_total{kind="Widget"}') == 0
        assert scrape('opsdk_generation_lag_objects{kind="Widget"}') == 1
        await world.change("b", trouble="program")
        scrape = await world.scrape()
        panics = scrape('opsdk_panics_total{kind="Widget"}')
        assert panics is not None
        assert panics >= 3
        assert scrape('opsdk_generation_lag_objects{kind="Widget"}') == 2
        await world.change("a")
        await world.change("b")
        await anyio.sleep(1000)  # the longest backoff
        assert (await world.scrape())('opsdk_generation_lag_objects{kind="Widget"}') == 0


async def test_the_deletion_backlog_and_the_states_follow_the_cache() -> None:
    async with running() as world:
        await world.create("a", "b")
        await world.scrape()
        await world.client.delete(Widget, "a", namespace="default")
        scrape = await world.scrape()
        assert scrape('opsdk_deletion_backlog_objects{kind="Widget"}') == 1
        assert scrape('opsdk_objects{kind="Widget",state="bye"}') == 1
        assert scrape('opsdk_state_transitions_total{from="small",kind="Widget",to="bye"}') == 1
        await world.client.patch(Widget, "a", MergePatch({"metadata": {"finalizers": None}}), namespace="default")
        scrape = await world.scrape()
        assert scrape('opsdk_deletion_backlog_objects{kind="Widget"}') == 0
        assert scrape('opsdk_objects{kind="Widget",state="bye"}') == 0


async def test_the_census_is_what_a_graph_shows_as_live() -> None:
    async with running() as world:
        coverage = Coverage()
        world.operator.machine.observe(coverage)  # beside the metrics
        await world.create("a", "b", "c")
        await world.change("a", size=2)
        await world.scrape()
        live = world.manager.metrics.census(KIND).totals().by_state
        drawn = world.operator.machine.graph(coverage=coverage, live=live)
        assert '"small · 2"' in drawn.mermaid
        assert '"big · 1"' in drawn.mermaid
        assert drawn.uncovered == ("state 'bye' was never entered",)
