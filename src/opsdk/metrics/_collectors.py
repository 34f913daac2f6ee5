"""Metrics that are computed when somebody scrapes, from counters that others keep."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import Protocol, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from opsdk.metrics.census import Census

__all__ = ["CensusCollector", "WorkInProgress", "WorkInProgressCollector"]


@final
class CensusCollector(Collector):
    """Shows the censuses of all kinds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_kind: dict[str, Census] = {}

    def of(self, kind: str, states: Collection[str]) -> Census:
        """The census of `kind`, made at the first call; each call adds its states."""
        with self._lock:
            census = self._by_kind.setdefault(kind, Census(kind))
        census.declare(states)
        return census

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The families, without samples: the registry checks their names."""
        return iter(self._families())

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily("opsdk_objects", "Objects in the cache, by kind and state.", labels=["kind", "state"]),
            GaugeMetricFamily(
                "opsdk_generation_lag_objects",
                "Objects whose status is about an older generation than their spec.",
                labels=["kind"],
            ),
            GaugeMetricFamily(
                "opsdk_deletion_backlog_objects", "Objects that are being deleted and still there.", labels=["kind"]
            ),
        )

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self._lock:
            censuses = list(self._by_kind.values())
        objects, lag, backlog = self._families()
        for census in censuses:
            totals = census.totals()
            for state, count in totals.by_state.items():
                objects.add_metric([census.kind, state], count)
            lag.add_metric([census.kind], totals.lagging)
            backlog.add_metric([census.kind], totals.deleting)
        yield from (objects, lag, backlog)


class WorkInProgress(Protocol):
    """Knows what a queue's workers are at. Read on the scrape thread."""

    @property
    def name(self) -> str:
        """The queue."""
        ...

    def in_progress(self) -> tuple[float, float]:
        """Seconds of unfinished work in all, and of the longest-running one."""
        ...


@final
class WorkInProgressCollector(Collector):
    """Shows work that has begun and not ended, which no counter of finished work can."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, WorkInProgress] = {}

    def add(self, queue: WorkInProgress, /) -> None:
        """Show this queue, in place of one of the same name."""
        with self._lock:
            self._queues[queue.name] = queue

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The families, without samples: the registry checks their names."""
        return iter(self._families())

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily(
                "workqueue_unfinished_work_seconds",
                "Seconds of work that has begun and not ended; a steady rise is a stuck worker.",
                labels=["name", "controller"],
            ),
            GaugeMetricFamily(
                "workqueue_longest_running_processor_seconds",
                "Seconds that the longest-running worker has been at its key.",
                labels=["name", "controller"],
            ),
        )

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self._lock:
            queues = list(self._queues.values())
        unfinished, longest = self._families()
        for queue in queues:
            total, most = queue.in_progress()
            unfinished.add_metric([queue.name, queue.name], total)
            longest.add_metric([queue.name, queue.name], most)
        yield from (unfinished, longest)


class ShardState(Protocol):
    """Knows how objects are divided. Read on the scrape thread."""

    @property
    def members(self) -> int:
        """How many processes divide them."""
        ...

    @property
    def epoch(self) -> int:
        """Which division of them this is."""
        ...

    @property
    def settled(self) -> bool:
        """Whether this process has all of its share."""
        ...

    @property
    def losses(self) -> int:
        """How often this process has lost its membership."""
        ...


class ShardShare(Protocol):
    """Knows how many objects of one controller are this process's. Read on the scrape thread."""

    @property
    def name(self) -> str:
        """The controller."""
        ...

    @property
    def share(self) -> int:
        """How many there are."""
        ...


@final
class ShardCollector(Collector):
    """Shows how several processes divide objects, as this one sees it. Shows nothing before there is something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: ShardState | None = None
        self._shares: dict[str, ShardShare] = {}

    def watch(self, state: ShardState, /) -> None:
        """Show this."""
        with self._lock:
            self._state = state

    def add(self, share: ShardShare, /) -> None:
        """Show the share of this controller, in place of one of the same name."""
        with self._lock:
            self._shares[share.name] = share

    def describe(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """The families, without samples: the registry checks their names."""
        return iter(self._families())

    @staticmethod
    def _families() -> tuple[
        GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily, CounterMetricFamily, GaugeMetricFamily
    ]:
        return (
            GaugeMetricFamily("opsdk_shard_members", "Replicas that divide the objects; 0 while this is none of them."),
            GaugeMetricFamily("opsdk_shard_view", "The number of the division; the same on all replicas, in the end."),
            GaugeMetricFamily("opsdk_shard_settled", "Whether this replica has all of its share: 1 or 0."),
            CounterMetricFamily("opsdk_shard_losses", "How often this replica has lost its membership."),
            GaugeMetricFamily("opsdk_shard_objects", "Objects of this replica, by controller.", labels=["controller"]),
        )

    @override
    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        with self._lock:
            state, shares = self._state, list(self._shares.values())
        if state is None:
            return
        members, view, settled, losses, objects = self._families()
        members.add_metric([], state.members)
        view.add_metric([], state.epoch)
        settled.add_metric([], float(state.settled))
        losses.add_metric([], state.losses)
        for share in shares:
            objects.add_metric([share.name], share.share)
        yield from (members, view, settled, losses, objects)
