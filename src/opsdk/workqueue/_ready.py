"""Keys that wait for a worker, first in first out within each priority."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar, final

import msgspec

from opsdk.workqueue.priority import Priority

__all__ = ["Ready", "Taken"]

K = TypeVar("K", bound=Hashable)

_HIGH_IN_A_ROW: Final = 9
"""So that one in ten is a LOW one, if any waits."""


@final
class Taken(msgspec.Struct, Generic[K], frozen=True):
    """A key that was taken out."""

    key: K
    priority: Priority
    since: float


@final
class Ready(Generic[K]):
    """Two queues without duplicates. Guarded by its user's lock.

    Attributes:
        count: How many keys wait.
    """

    def __init__(self) -> None:
        self.count = 0
        self._high: OrderedDict[K, float] = OrderedDict()
        self._low: OrderedDict[K, float] = OrderedDict()
        self._high_in_a_row = 0

    def __contains__(self, key: K) -> bool:
        return key in self._high or key in self._low

    def push(self, key: K, priority: Priority, now: float) -> bool:
        """Append `key`; one that is there already keeps its place, or moves up to the higher priority.

        Returns:
            Whether it was not there.
        """
        if priority is Priority.LOW:
            if key in self:
                return False
            self._low[key] = now
            self.count += 1
            return True
        if key in self._high:
            return False
        since = self._low.pop(key, None)
        if since is None:
            self._high[key] = now
            self.count += 1
            return True
        self._high[key] = since
        return False

    def take(self) -> Taken[K] | None:
        """Take out the next: HIGH before LOW, but after nine HIGH ones in a row that a LOW one had to see, that one."""
        if self._low and (not self._high or self._high_in_a_row >= _HIGH_IN_A_ROW):
            self._high_in_a_row = 0
            key, since = self._low.popitem(last=False)
            self.count -= 1
            return Taken(key, Priority.LOW, since)
        if self._high:
            self._high_in_a_row = self._high_in_a_row + 1 if self._low else 0
            key, since = self._high.popitem(last=False)
            self.count -= 1
            return Taken(key, Priority.HIGH, since)
        return None

    def clear(self) -> None:
        """Forget all."""
        self._high.clear()
        self._low.clear()
        self.count = 0

    def shift(self, seconds: float) -> None:
        """Move all times: the clock was replaced by one that shows something else."""
        for queue in (self._high, self._low):
            for key in queue:
                queue[key] += seconds
