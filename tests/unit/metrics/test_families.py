"""Our families show what prometheus_client's own would. Invariant: the same reports, the same text, but for dates."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    enable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import choose_encoder

from opsdk.metrics._families import Counts, Levels, Source, Spreads
from opsdk.metrics._prometheus import register

_BUCKETS = (1e-08, 0.005, 0.1, 1.0, 12.5, 1000.0)
_LABELS = ["name", "result"]
_DATE = re.compile(rb"(_created\{[^}]*\}) \S+")

values = st.floats(min_value=0, max_value=1e6) | st.sampled_from(_BUCKETS)
labels = st.tuples(st.sampled_from("ab"), st.sampled_from(['"x"', "y\n", "é"]))


def registry_of(sources: list[Source]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    register(sources, registry)
    return registry


def text_of(registry: CollectorRegistry) -> list[bytes]:
    return [_DATE.sub(rb"\1", choose_encoder(accept)[0](registry)) for accept in ("", "application/openmetrics-text")]


@given(st.lists(st.tuples(labels, values)))
def test_a_histogram_shows_the_same(reports: Sequence[tuple[tuple[str, str], float]]) -> None:
    ours: list[Source] = []
    theirs = CollectorRegistry(auto_describe=True)
    spread = Spreads("work_seconds", "How long.", _LABELS, buckets=_BUCKETS, shown=ours)
    histogram = Histogram("work_seconds", "How long.", _LABELS, buckets=_BUCKETS, registry=theirs)
    for names, value in reports:
        spread.labels(*names).observe(value)
        histogram.labels(*names).observe(value)
    assert text_of(registry_of(ours)) == text_of(theirs)


@given(st.lists(st.tuples(labels, st.integers(-3, 3))))
def test_counters_and_gauges_show_the_same(reports: Sequence[tuple[tuple[str, str], int]]) -> None:
    ours: list[Source] = []
    theirs = CollectorRegistry(auto_describe=True)
    count = Counts("adds_total", "How many.", _LABELS, shown=ours)
    level = Levels("depth", "How deep.", _LABELS, shown=ours)
    counter = Counter("adds_total", "How many.", _LABELS, registry=theirs)
    gauge = Gauge("depth", "How deep.", _LABELS, registry=theirs)
    for names, value in reports:
        count.labels(*names).inc()
        counter.labels(*names).inc()
        for each in (level.labels(*names), gauge.labels(*names)):
            if value > 1:
                each.set(value)
            elif value > 0:
                each.inc()
            else:
                each.dec()
    assert text_of(registry_of(ours)) == text_of(theirs)


def test_dates_are_left_out_where_prometheus_client_is_told_to() -> None:
    sources: list[Source] = []
    Counts("adds_total", "How many.", ["name"], shown=sources).labels("a").inc()
    Spreads("work_seconds", "How long.", ["name"], buckets=(1.0,), shown=sources).labels("a").observe(1)
    registry = registry_of(sources)
    assert b"_created" in generate_latest(registry)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types
    try:
        assert b"_created" not in generate_latest(registry)
    finally:
        enable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types


def counts(shown: list[Source]) -> object:
    return Counts("adds_total", "How many.", ["name"], shown=shown)


def levels(shown: list[Source]) -> object:
    return Levels("adds", "How many.", ["name"], shown=shown)


def spreads(shown: list[Source]) -> object:
    return Spreads("adds", "How many.", ["name"], buckets=(1.0,), shown=shown)


@pytest.mark.parametrize("make", [counts, levels, spreads])
def test_a_name_that_is_taken_is_refused(make: Callable[[list[Source]], object]) -> None:
    registry = CollectorRegistry(auto_describe=True)
    Gauge("adds", "Somebody else's.", registry=registry)
    Gauge("adds_total", "Somebody else's.", registry=registry)
    sources: list[Source] = []
    make(sources)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        register(sources, registry)
