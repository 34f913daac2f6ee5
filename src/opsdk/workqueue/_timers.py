"""Keys that will be due, the earliest time winning."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar, final

from opsdk.workqueue.priority import Priority

__all__ = ["Timers"]

K = TypeVar("K", bound=Hashable)

_SLACK: Final = 64


@final
class Timers(Generic[K]):
    """One time a key. Guarded by its user's lock.

    Attributes:
        due: The time of each, for those who look whether there are any.
    """

    def __init__(self) -> None:
        self.due: dict[K, tuple[float, int, Priority]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()

    def set(self, key: K, at: float, priority: Priority) -> None:
        """Have `key` due at a time in seconds, unless it is due earlier; the higher priority wins in any case."""
        standing = self.due.get(key)
        if standing is not None and standing[0] <= at:
            self.due[key] = (standing[0], standing[1], max(standing[2], priority))
            return
        number = next(self._order)
        self.due[key] = (at, number, priority if standing is None else max(standing[2], priority))
        heapq.heappush(self._heap, (at, number, key))
        if len(self._heap) > 2 * len(self.due) + _SLACK:
            self._rebuild()

    def drop(self, key: K) -> None:
        """Forget the time of `key`, if there is one."""
        self.due.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self.due.clear()
        self._heap.clear()

    def shift(self, seconds: float) -> None:
        """Move all times: the clock was replaced by one that shows something else."""
        self.due = {key: (at + seconds, number, priority) for key, (at, number, priority) in self.due.items()}
        self._rebuild()

    def next_at(self) -> float:
        """The earliest time; infinite when there is none."""
        while self._heap:
            at, number, key = self._heap[0]
            if self._stands(number, key):
                return at
            heapq.heappop(self._heap)
        return math.inf

    def pop_due(self, now: float) -> Iterator[tuple[K, Priority]]:
        """Take out the keys whose time has come, in the order of their times."""
        while self.next_at() <= now:
            _, _, key = heapq.heappop(self._heap)
            yield key, self.due.pop(key)[2]

    def _stands(self, number: int, key: K) -> bool:
        standing = self.due.get(key)
        return standing is not None and standing[1] == number

    def _rebuild(self) -> None:
        # Dropped and replaced times stay in the heap until they come up; ten hours of them would be a leak.
        self._heap = [(at, number, key) for key, (at, number, _) in self.due.items()]
        heapq.heapify(self._heap)
