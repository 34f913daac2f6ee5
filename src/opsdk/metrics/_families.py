"""Metric families whose numbers are plain: reporting is an addition, and all else is done when somebody scrapes.

prometheus_client's own take a lock or two for each number, and look through a histogram's buckets one by one: a tenth
of what an event costs that changes nothing. They show the same. It is loaded by the first scrape; see `_prometheus`.

Not promised: that two threads may report to one number at the same time. Scrapes may come from any.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, Protocol, TypeVar, final

import msgspec

__all__ = ["Counts", "Levels", "Number", "Reading", "Source", "Spread", "Spreads"]


@final
class Number:
    """A counter or a gauge."""

    __slots__ = ("_value", "created")

    def __init__(self) -> None:
        self._value: float = 0
        self.created: float = time.time()

    @property
    def value(self) -> float:
        """What it is now."""
        return float(self._value)

    def inc(self) -> None:
        """Add one."""
        self._value += 1

    def dec(self) -> None:
        """Take one off."""
        self._value -= 1

    def set(self, value: float, /) -> None:
        """Have it be so much."""
        self._value = value


@final
class Spread:
    """A histogram: how many values there were up to each bound, and their sum."""

    __slots__ = ("_counts", "_total", "bounds", "created")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Sequence[float] = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self.created: float = time.time()

    def observe(self, value: float, /) -> None:
        """Count a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self._total += value

    @property
    def sum(self) -> float:
        """Of all values."""
        return self._total

    def up_to(self) -> list[float]:
        """How many values there were up to each bound, and in all."""
        found: list[float] = []
        total = 0.0
        for count in tuple(self._counts):
            total += count
            found.append(total)
        return found


class Reading(msgspec.Struct, frozen=True):
    """A family at one moment.

    Args:
        type: What its numbers are.
        name: Of a counter, with `_total` at its end.
        documentation: For people.
        labels: Their names.
        values: For each combination of labels.
    """

    type: Literal["counter", "gauge", "histogram"]
    name: str
    documentation: str
    labels: Sequence[str] = ()
    values: Sequence[tuple[Sequence[str], float | Number | Spread]] = ()


class Source(Protocol):
    """Has something to show."""

    def readings(self, *, values: bool = True) -> Iterator[Reading]:
        """The families as they are now; the same ones each time, but those that have nothing to say may be missing.

        Args:
            values: Whether with their values; without, all of them.
        """
        ...


C = TypeVar("C", Number, Spread)


class _Family(Generic[C]):
    """One name, and a number for each combination of labels.

    Args:
        name: The name; of counters, with `_total` at its end.
        documentation: For people.
        labels: Their names.
        shown: Where it is added.
    """

    def __init__(
        self,
        type: Literal["counter", "gauge", "histogram"],  # noqa: A002 - Prometheus' word
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        make: Callable[[], C],
        shown: list[Source],
    ) -> None:
        self._blank = Reading(type, name, documentation, tuple(labels))
        self._make: Callable[[], C] = make
        self._lock = threading.Lock()
        self._children: dict[tuple[str, ...], C] = {}
        shown.append(self)

    def labels(self, *values: str) -> C:
        """The number with these labels, made at the first call; for those who report often to keep."""
        child = self._children.get(values)
        if child is None:
            with self._lock:
                child = self._children.setdefault(values, self._make())
        return child

    def readings(self, *, values: bool = True) -> Iterator[Reading]:
        """See `Source`."""
        if values:
            with self._lock:
                found = list(self._children.items())
            yield msgspec.structs.replace(self._blank, values=found)
        else:
            yield self._blank


@final
class Counts(_Family[Number]):
    """Counters. See `_Family`."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, shown: list[Source]) -> None:
        super().__init__("counter", name, documentation, labels, make=Number, shown=shown)


@final
class Levels(_Family[Number]):
    """Gauges. See `_Family`."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, shown: list[Source]) -> None:
        super().__init__("gauge", name, documentation, labels, make=Number, shown=shown)


@final
class Spreads(_Family[Spread]):
    """Histograms, with the upper bounds `buckets`, ascending, without the infinite one. See `_Family`."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], *, buckets: Sequence[float], shown: list[Source]
    ) -> None:
        super().__init__("histogram", name, documentation, labels, make=lambda: Spread(buckets), shown=shown)
