"""Invariant: a census says what a count over all objects would say, whatever order they came in."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from opsdk.metrics import Census, CensusTotals, Metrics

STATES = ("new", "running")
Facts: TypeAlias = tuple[str, bool, bool]
facts = st.tuples(st.sampled_from([*STATES, "", "made-up"]), st.booleans(), st.booleans())
steps = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | facts))


@given(steps)
def test_a_census_equals_a_count_over_all_objects(changes: list[tuple[str, Facts | None]]) -> None:
    census = Census("Widget", STATES)
    objects: dict[str, Facts] = {}
    for key, fact in changes:
        if fact is None:
            census.drop(key)
            objects.pop(key, None)
        else:
            census.put(key, state=fact[0], lagging=fact[1], deleting=fact[2])
            objects[key] = fact
    by_state = Counter(state if state in STATES else "unknown" for state, _, _ in objects.values())
    assert census.totals() == CensusTotals(
        by_state={state: by_state[state] for state in STATES}
        | ({"unknown": by_state["unknown"]} if by_state["unknown"] else {}),
        lagging=sum(lagging for _, lagging, _ in objects.values()),
        deleting=sum(deleting for _, _, deleting in objects.values()),
    )


def test_a_scrape_may_come_at_any_moment() -> None:
    metrics = Metrics()
    census = metrics.census("Widget", STATES)
    done = threading.Event()
    wrong: list[float] = []

    def scrape() -> None:
        while not done.is_set():
            value = metrics.registry.get_sample_value("opsdk_objects", {"kind": "Widget", "state": "running"})
            if value not in {0.0, 1.0}:
                wrong.append(value if value is not None else -1)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    for number in range(20_000):
        census.put("a", state=STATES[number % 2], lagging=False, deleting=False)
    done.set()
    scraper.join()
    assert wrong == []


def test_a_kind_has_one_census() -> None:
    metrics = Metrics()
    assert metrics.census("Widget", STATES) is metrics.census("Widget", STATES)


def test_kinds_of_one_name_in_different_groups_count_together_each_with_its_states() -> None:
    metrics = Metrics()
    census = metrics.census("Cluster", ["new"])
    assert metrics.census("Cluster", ["old"]) is census
    for key, state in (("1", "new"), ("2", "old"), ("3", "other")):
        census.put(key, state=state, lagging=False, deleting=False)
    assert census.totals().by_state == {"new": 1, "old": 1, "unknown": 1}
