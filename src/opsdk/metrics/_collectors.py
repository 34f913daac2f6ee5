"""Metrics that are computed when somebody scrapes, from counters that others keep."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import Final, Protocol, final

from opsdk.metrics._families import Reading
from opsdk.metrics.census import Census

__all__ = ["CensusSource", "ShardShare", "ShardSource", "ShardState", "WorkInProgress", "WorkInProgressSource"]

_OBJECTS: Final = ("opsdk_objects", "Objects in the cache, by kind and state.", ("kind", "state"))
_LAG: Final = (
    "opsdk_generation_lag_objects",
    "Objects whose status is about an older generation than their spec.",
    ("kind",),
)
_BACKLOG: Final = (
    "opsdk_deletion_backlog_objects",
    "Objects that are being deleted and still there.",
    ("kind",),
)
_UNFINISHED: Final = (
    "workqueue_unfinished_work_seconds",
    "Seconds of work that has begun and not ended; a steady rise is a stuck worker.",
    ("name", "controller"),
)
_LONGEST: Final = (
    "workqueue_longest_running_processor_seconds",
    "Seconds that the longest-running worker has been at its key.",
    ("name", "controller"),
)
_MEMBERS: Final = ("opsdk_shard_members", "Replicas that divide the objects; 0 while this is none of them.", ())
_VIEW: Final = ("opsdk_shard_view", "The number of the division; the same on all replicas, in the end.", ())
_SETTLED: Final = ("opsdk_shard_settled", "Whether this replica has all of its share: 1 or 0.", ())
_LOSSES: Final = ("opsdk_shard_losses_total", "How often this replica has lost its membership.", ())
_SHARE: Final = ("opsdk_shard_objects", "Objects of this replica, by controller.", ("controller",))


@final
class CensusSource:
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

    def readings(self, *, values: bool = True) -> Iterator[Reading]:
        """See `Source`."""
        with self._lock:
            censuses = list(self._by_kind.values()) if values else []
        totals = [(census.kind, census.totals()) for census in censuses]
        states = [((kind, state), count) for kind, total in totals for state, count in total.by_state.items()]
        yield Reading("gauge", *_OBJECTS, states)
        yield Reading("gauge", *_LAG, [((kind,), total.lagging) for kind, total in totals])
        yield Reading("gauge", *_BACKLOG, [((kind,), total.deleting) for kind, total in totals])


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
class WorkInProgressSource:
    """Shows work that has begun and not ended, which no counter of finished work can."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, WorkInProgress] = {}

    def add(self, queue: WorkInProgress, /) -> None:
        """Show this queue, in place of one of the same name."""
        with self._lock:
            self._queues[queue.name] = queue

    def readings(self, *, values: bool = True) -> Iterator[Reading]:
        """See `Source`."""
        with self._lock:
            queues = list(self._queues.values()) if values else []
        seconds = [((queue.name, queue.name), queue.in_progress()) for queue in queues]
        yield Reading("gauge", *_UNFINISHED, [(names, total) for names, (total, _) in seconds])
        yield Reading("gauge", *_LONGEST, [(names, longest) for names, (_, longest) in seconds])


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
class ShardSource:
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

    def readings(self, *, values: bool = True) -> Iterator[Reading]:
        """See `Source`."""
        with self._lock:
            state, shares = self._state, list(self._shares.values())
        if state is None and values:
            return
        yield Reading("gauge", *_MEMBERS, [] if state is None else [((), state.members)])
        yield Reading("gauge", *_VIEW, [] if state is None else [((), state.epoch)])
        yield Reading("gauge", *_SETTLED, [] if state is None else [((), float(state.settled))])
        yield Reading("counter", *_LOSSES, [] if state is None else [((), state.losses)])
        yield Reading("gauge", *_SHARE, [((share.name,), share.share) for share in shares])
