"""The soak's judge sees what it is there to see."""

from __future__ import annotations

from typing import Any

import pytest

from etcd_gateway import EtcdEvent
from soak.gadgets import LABEL, WRITER
from soak.history import Facts, Judge
from soak.replica import WORKERS
from soak.replicas import Figures
from soak.report import page
from soak.storm import Plan, Report, growth


class Cluster:
    """Writes, one after the other, as they stand in etcd."""

    def __init__(self, *, sharded: bool = False) -> None:
        self.judge = Judge(sharded=sharded)
        self.revision = 0

    def put(self, kind: str, name: str, value: int, *, by: str = "", status: int | None = None) -> Cluster:
        annotations = {WRITER: by} if by and status is None else {}
        document: dict[str, Any] = {
            "metadata": {"labels": {LABEL: "gold"}, "annotations": annotations},
            "spec": {"value": value},
        }
        if status is not None:
            document["status"] = {"value": status, "tier": "gold", "writer": by}
        return self.tell(kind, name, document)

    def tell(self, kind: str, name: str, document: dict[str, Any] | None) -> Cluster:
        self.revision += 1
        self.judge.take(kind, name, EtcdEvent(key=f"{kind}/{name}", revision=self.revision, document=document))
        return self

    @property
    def facts(self) -> Facts:
        return self.judge.facts


def test_writes_of_terms_in_order_are_fine() -> None:
    cluster = (
        Cluster().put("parts", "a", 1, by="1/x/1").put("parts", "a", 2, by="2/y/1").put("parts", "b", 1, by="2/y/2")
    )
    assert cluster.facts.faults == []
    assert (cluster.facts.writes, cluster.facts.terms) == (3, {1, 2})


def test_an_older_term_that_writes_an_object_after_a_newer_one_is_a_fault() -> None:
    cluster = Cluster().put("parts", "a", 1, by="2/y/1").put("parts", "a", 2, by="1/x/1")
    (fault,) = cluster.facts.faults
    assert fault == "parts/a@2: term 1 wrote after term 2 had"


def test_two_writers_in_one_term_are_a_fault() -> None:
    cluster = Cluster().put("parts", "a", 1, by="1/x/1").put("parts", "b", 2, by="1/y/1")
    (fault,) = cluster.facts.faults
    assert fault == "parts/b@2: y wrote in term 1 of x"


def test_where_objects_are_divided_a_term_has_one_writer_for_each() -> None:
    cluster = Cluster(sharded=True).put("parts", "a", 1, by="1/x/1").put("parts", "b", 2, by="1/y/1")
    assert cluster.facts.faults == []
    cluster.put("parts", "a", 3, by="1/y/2")
    assert cluster.facts.faults == ["parts/a@3: y wrote in term 1 of x"]


def test_as_many_late_writes_to_other_objects_as_there_are_workers_are_counted_and_one_more_is_a_fault() -> None:
    cluster = Cluster().put("parts", "new", 1, by="2/y/1")
    for number in range(WORKERS):
        cluster.put("parts", f"a{number}", 1, by=f"1/x/{number}")
    assert (cluster.facts.late_writes, cluster.facts.faults) == (WORKERS, [])
    cluster.put("parts", "one-more", 1, by="1/x/99")
    assert len(cluster.facts.faults) == 1


def test_writes_of_users_are_nobodys() -> None:
    cluster = Cluster().put("gadgets", "a", 1, by="1/x/1").put("gadgets", "a", 2, by="1/x/1")
    assert cluster.facts.writes == 1


def test_an_object_is_waited_for_until_status_and_part_are_as_it_wants() -> None:
    cluster = Cluster().put("gadgets", "a", 1)
    assert cluster.judge.unfinished == 1
    cluster.put("parts", "a", 1, by="1/x/1")
    assert cluster.judge.unfinished == 1
    cluster.put("gadgets", "a", 1, by="1/x/2", status=1)
    assert cluster.judge.unfinished == 0
    cluster.put("gadgets", "a", 2, by="1/x/2", status=1)
    assert cluster.judge.unfinished == 1
    cluster.tell("gadgets", "a", None)
    assert (cluster.judge.unfinished, len(cluster.facts.waits)) == (0, 2)


def test_a_part_that_is_taken_away_is_waited_for() -> None:
    cluster = Cluster().put("parts", "a", 1).put("gadgets", "a", 1, status=1)
    assert cluster.judge.unfinished == 0
    cluster.tell("parts", "a", None)
    assert cluster.judge.unfinished == 1


def figures(second: int, *, rss: float = 80, descriptors: int = 15, threads: int = 4) -> Figures:
    return Figures(seconds=second, rss_mib=rss, descriptors=descriptors, threads=threads)


def test_what_is_steady_after_the_warm_up_has_not_grown() -> None:
    curve = [figures(second, rss=min(20 + 3 * second, 80)) for second in range(100)]
    assert growth(curve) == []


@pytest.mark.parametrize("what", ["rss", "descriptors", "threads"])
def test_what_leaks_has_grown(what: str) -> None:
    curve = [figures(second, **{what: 15 + second // 2}) for second in range(100)]
    (fault,) = growth(curve)
    assert fault.startswith(what)


def test_a_replica_that_was_never_seen_is_a_fault() -> None:
    assert growth([]) == ["the steady replica was never seen"]


@pytest.mark.parametrize("sharded", [False, True])
def test_the_page_says_why_waits_are_long_and_what_may_grow(*, sharded: bool) -> None:
    facts = Facts(waits=[1.0, 2.0, 90.0])
    report = Report(plan=Plan(seconds=60, sharded=sharded), facts=facts, steady="s", curves={"s": [figures(1)]})
    text = page(report)
    assert "| changes waited for | 3 |" in text
    assert "a replacement is one write and two changes" in text
    assert ("Each new leader goes through" in text) is not sharded
    assert "| after | memory (grows by 10 % and 8 MiB at most) | descriptors (by 8) | threads (by 4) |" in text
    assert "{" not in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120
