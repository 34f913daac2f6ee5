"""Each meter is what the part that reports to it asks for, and says what dashboards expect."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from opsdk.client import RequestObserver
from opsdk.controller.metrics import ControllerMetrics, ReconcileMetrics, ReconcileOutcome
from opsdk.events import EventObserver
from opsdk.manager.election import LeaderObserver
from opsdk.metrics import Metrics
from opsdk.persistence import PersistenceMetrics, PersistenceObserver
from opsdk.statemachine import MachineObserver
from opsdk.workqueue import WorkQueue, WorkQueueMetrics

pytestmark = pytest.mark.anyio


def value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_meters_fit_the_protocols_of_those_who_report() -> None:
    metrics = Metrics()
    controller_metrics: ControllerMetrics = metrics
    reconcile: ReconcileMetrics = controller_metrics.reconcile("widget")
    queue: WorkQueueMetrics = controller_metrics.workqueue("widget")
    requests: RequestObserver = metrics.rest_client
    machine: MachineObserver = metrics.machine("Widget")
    persistence_metrics: PersistenceMetrics = metrics
    persistence: PersistenceObserver = persistence_metrics.persistence("Widget")
    events: EventObserver = metrics.events
    leader: LeaderObserver = metrics.leader("op")
    assert all((reconcile, queue, requests, machine, persistence, events, leader))


@pytest.mark.parametrize(
    ("outcome", "result", "counter"),
    [
        ("success", "success", None),
        ("requeue", "requeue", None),
        ("requeue_after", "requeue_after", None),
        ("error", "error", None),
        ("terminal_error", "error", "controller_runtime_terminal_reconcile_errors_total"),
        ("timeout", "error", "controller_runtime_reconcile_timeouts_total"),
        ("panic", "error", "controller_runtime_reconcile_panics_total"),
    ],
)
def test_an_outcome_is_counted_as_controller_runtime_counts_it(
    outcome: ReconcileOutcome, result: str, counter: str | None
) -> None:
    metrics = Metrics()
    meter = metrics.reconcile("widget")
    meter.workers(4)
    meter.started()
    assert value(metrics, "controller_runtime_active_workers", controller="widget") == 1
    meter.finished(outcome, 0.3)
    assert value(metrics, "controller_runtime_active_workers", controller="widget") == 0
    assert value(metrics, "controller_runtime_max_concurrent_reconciles", controller="widget") == 4
    results = ("success", "requeue", "requeue_after", "error")
    assert {
        name: value(metrics, "controller_runtime_reconcile_total", controller="widget", result=name) for name in results
    } == {name: float(name == result) for name in results}
    assert value(metrics, "controller_runtime_reconcile_errors_total", controller="widget") == float(result == "error")
    assert value(metrics, "controller_runtime_reconcile_time_seconds_sum", controller="widget") == 0.3
    if counter is not None:
        assert value(metrics, counter, controller="widget") == 1


def test_a_cancelled_reconcile_is_neither_success_nor_failure() -> None:
    metrics = Metrics()
    meter = metrics.reconcile("widget")
    meter.started()
    before = metrics.exposition()
    meter.finished("cancelled", 5)
    after = metrics.exposition()
    changed = set(after.splitlines()) - set(before.splitlines())
    ours = {line for line in changed if line.startswith(b"controller_runtime")}
    assert ours == {b'controller_runtime_active_workers{controller="widget"} 0.0'}


async def test_a_workqueue_shows_what_waits_and_what_is_being_worked_on() -> None:
    metrics = Metrics()
    queue = WorkQueue[str]("widget", metrics=metrics.workqueue("widget"))
    metrics.watch_workqueue(queue)
    labels = {"name": "widget", "controller": "widget"}
    queue.add("a")
    queue.add("b")
    queue.add_rate_limited("c")
    queue.add_after("d", timedelta(hours=1))
    assert value(metrics, "workqueue_depth", **labels) == 2
    assert value(metrics, "workqueue_adds_total", **labels) == 2
    assert value(metrics, "workqueue_retries_total", **labels) == 1
    async with queue.lease():
        await anyio.sleep(2)
        async with queue.lease():
            await anyio.sleep(3)
            assert value(metrics, "workqueue_unfinished_work_seconds", **labels) == pytest.approx(8, abs=0.1)
            assert value(metrics, "workqueue_longest_running_processor_seconds", **labels) == pytest.approx(5, abs=0.1)
    assert value(metrics, "workqueue_unfinished_work_seconds", **labels) == 0
    assert value(metrics, "workqueue_work_duration_seconds_count", **labels) == 2
    assert value(metrics, "workqueue_work_duration_seconds_sum", **labels) == pytest.approx(8, abs=0.1)
