"""What dashboards and alerts find under which name."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from opsdk.errors import ConfigurationError
from opsdk.metrics import Metrics


def value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {key.rstrip("_"): label for key, label in labels.items()})


def series(metrics: Metrics) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Every name and label set that a scrape would see."""
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in metrics.registry.collect()
        for sample in family.samples
    }


def test_two_managers_live_in_one_process() -> None:
    first, second = Metrics(), Metrics()
    first.leader("op").leading(True)
    second.leader("op")
    assert value(first, "leader_election_master_status", name="op") == 1
    assert value(second, "leader_election_master_status", name="op") == 0


def test_a_registry_of_the_programs_own_is_used_as_it_is() -> None:
    registry = CollectorRegistry()
    Counter("mine", "Mine.", registry=registry).inc()
    text = Metrics(registry).exposition().decode()
    assert "mine_total 1.0" in text
    assert "process_" not in text


def test_requests_have_the_labels_of_client_go() -> None:
    metrics = Metrics()
    metrics.rest_client.observe(verb="GET", host="10.0.0.1:443", code="200", seconds=0.02)
    metrics.rest_client.observe(verb="PATCH", host="10.0.0.1:443", code="<error>", seconds=30)
    assert value(metrics, "rest_client_requests_total", code="200", method="GET", host="10.0.0.1:443") == 1
    assert value(metrics, "rest_client_requests_total", code="<error>", method="PATCH", host="10.0.0.1:443") == 1


def test_transitions_and_dwell_times_are_by_kind_and_state() -> None:
    metrics = Metrics()
    machine = metrics.machine("Widget", ["new", "running"])
    machine.transition("", "new", 0.0)
    machine.transition("new", "running", 42.0)
    assert value(metrics, "opsdk_state_transitions_total", kind="Widget", from_="", to="new") == 1
    assert value(metrics, "opsdk_state_transitions_total", kind="Widget", from_="new", to="running") == 1
    assert value(metrics, "opsdk_state_dwell_seconds_sum", kind="Widget", state="new") == 42
    assert value(metrics, "opsdk_state_dwell_seconds_count", kind="Widget", state="running") is None


def test_objects_are_counted_from_the_cache() -> None:
    metrics = Metrics()
    census = metrics.census("Widget", ["new", "running"])
    census.put("1", state="running", lagging=True, deleting=False)
    census.put("2", state="running", lagging=False, deleting=True)
    assert value(metrics, "opsdk_objects", kind="Widget", state="new") == 0
    assert value(metrics, "opsdk_objects", kind="Widget", state="running") == 2
    assert value(metrics, "opsdk_generation_lag_objects", kind="Widget") == 1
    assert value(metrics, "opsdk_deletion_backlog_objects", kind="Widget") == 1


def test_q09_no_label_set_grows_with_objects_or_with_what_they_say() -> None:
    metrics = Metrics()
    machine = metrics.machine("Widget", ["new", "running"])
    census = metrics.census("Widget", ["new", "running"])
    persistence = metrics.persistence("Widget")

    def one_object(number: int) -> None:
        census.put(f"uid-{number}", state=f"state-{number}", lagging=False, deleting=False)
        machine.transition("new", f"state-{number}", 1.0)
        machine.transition(f"state-{number}", "running", 1.0)
        machine.pass_finished("success", 0.1)
        machine.panic()
        metrics.events.event("Normal", "created")
        persistence.not_ready(f"Reason{number}")
        metrics.malformed("Widget")
        metrics.rest_client.observe(verb=f"VERB{number}", host="api", code=f"code {number}", seconds=0.1)

    for number in range(40):
        one_object(number)
    after_forty = series(metrics)
    for number in range(40, 1000):
        one_object(number)
    assert series(metrics) == after_forty


def test_what_the_database_is_asked_is_counted_by_kind_and_result() -> None:
    metrics = Metrics()
    persistence = metrics.persistence("Role")
    assert value(metrics, "opsdk_persistence_upserts_total", kind="Role", result="failed") == 0  # before the first
    persistence.upserted("stored")
    persistence.upserted("conflict")
    persistence.made_way("resolved")
    persistence.deleted("failed")
    persistence.hook_finished("upsert", 0.5)
    assert value(metrics, "opsdk_persistence_upserts_total", kind="Role", result="stored") == 1
    assert value(metrics, "opsdk_persistence_upserts_total", kind="Role", result="conflict") == 1
    assert value(metrics, "opsdk_persistence_conflicts_total", kind="Role", result="resolved") == 1
    assert value(metrics, "opsdk_persistence_deletes_total", kind="Role", result="failed") == 1
    assert value(metrics, "opsdk_persistence_hook_seconds_sum", kind="Role", hook="upsert") == 0.5


def test_reasons_beyond_the_first_thirty_two_are_counted_as_other() -> None:
    metrics = Metrics()
    persistence = metrics.persistence("Role")
    for number in range(35):
        persistence.not_ready(f"Reason{number}")
    persistence.not_ready("Reason0")
    assert value(metrics, "opsdk_persistence_not_ready_total", kind="Role", reason="Reason0") == 2
    assert value(metrics, "opsdk_persistence_not_ready_total", kind="Role", reason="Reason32") is None
    assert value(metrics, "opsdk_persistence_not_ready_total", kind="Role", reason="other") == 3


def test_metrics_are_served_in_the_format_that_the_scraper_asks_for() -> None:
    metrics = Metrics()
    metrics.leader("op").leading(True)
    with metrics.server("127.0.0.1:0") as server:
        with urllib.request.urlopen(server.url + "/metrics", timeout=30) as answer:
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("text/plain")
        families = {family.name for family in text_string_to_metric_families(text)}
        assert {"leader_election_master_status", "process_cpu_seconds", "opsdk_objects"} <= families

        openmetrics = urllib.request.Request(
            server.url + "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
        )
        with urllib.request.urlopen(openmetrics, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.read().endswith(b"# EOF\n")

        nonsense = urllib.request.Request(server.url + "/metrics", headers={"Accept": "text/plain; version=x"})
        with urllib.request.urlopen(nonsense, timeout=30) as answer:
            assert answer.status == 200

        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen(server.url + "/", timeout=30)
        missing.value.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("opsdk-http")]


def test_a_malformed_address_is_refused_before_anything_listens() -> None:
    with pytest.raises(ConfigurationError, match="8080"):
        Metrics().server("8080")
