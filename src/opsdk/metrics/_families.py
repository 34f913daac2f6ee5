"""Metric families whose numbers are plain: reporting is an addition, and all else is done when somebody scrapes.

prometheus_client's own take a lock or two for each number, and look through a histogram's buckets one by one: a tenth
of what an event costs that changes nothing. They show the same.

Not promised: that two threads may report to one number at the same time. Scrapes may come from any.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, final

from prometheus_client import Counter as _Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Sample
from typing_extensions import override

__all__ = ["Counts", "Levels", "Number", "Spread", "Spreads"]


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

    __slots__ = ("_bounds", "_counts", "_total", "created")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self.created: float = time.time()

    def observe(self, value: float, /) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
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


C = TypeVar("C", Number, Spread)


class _Family(Collector, Generic[C]):
    """One name, and a number for each combination of labels."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        make: Callable[[], C],
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._make: Callable[[], C] = make
        self._lock = threading.Lock()
        self._children: dict[tuple[str, ...], C] = {}
        registry.register(self)

    def labels(self, *values: str) -> C:
        """The number with these labels, made at the first call; for those who report often to keep."""
        child = self._children.get(values)
        if child is None:
            with self._lock:
                child = self._children.setdefault(values, self._make())
        return child

    def _all(self) -> list[tuple[tuple[str, ...], C]]:
        with self._lock:
            return list(self._children.items())


@final
class Counts(_Family[Number]):
    """Counters.

    Args:
        name: With `_total` at its end.
        documentation: For people.
        labels: Their names.
        registry: Where to show it.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry) -> None:
        super().__init__(name, documentation, labels, make=Number, registry=registry)

    def describe(self) -> Iterator[Metric]:
        """The family, without samples."""
        yield self._family()

    @override
    def collect(self) -> Iterator[Metric]:
        family, dated = self._family(), _are_dated()
        for labels, number in self._all():
            family.add_metric(labels, number.value, created=number.created if dated else None)
        yield family

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._name, self._documentation, labels=self._labels)


@final
class Levels(_Family[Number]):
    """Gauges.

    Args:
        name: The name.
        documentation: For people.
        labels: Their names.
        registry: Where to show it.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry) -> None:
        super().__init__(name, documentation, labels, make=Number, registry=registry)

    def describe(self) -> Iterator[Metric]:
        """The family, without samples."""
        yield self._family()

    @override
    def collect(self) -> Iterator[Metric]:
        family = self._family()
        for labels, number in self._all():
            family.add_metric(labels, number.value)
        yield family

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._documentation, labels=self._labels)


@final
class Spreads(_Family[Spread]):
    """Histograms.

    Args:
        name: The name.
        documentation: For people.
        labels: Their names.
        buckets: The upper bounds, ascending, without the infinite one.
        registry: Where to show it.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._bounds = [*(repr(float(bound)) for bound in buckets), "+Inf"]  # so for bounds below a million
        super().__init__(name, documentation, labels, make=lambda: Spread(buckets), registry=registry)

    def describe(self) -> Iterator[Metric]:
        """The family, without samples."""
        yield self._family()

    @override
    def collect(self) -> Iterator[Metric]:
        family, dated = self._family(), _are_dated()
        for labels, spread in self._all():
            family.add_metric(labels, list(zip(self._bounds, spread.up_to(), strict=True)), spread.sum)
            if dated:
                named = dict(zip(self._labels, labels, strict=True))
                family.samples.append(Sample(f"{self._name}_created", named, spread.created))
        yield family

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=self._labels)


def _are_dated() -> bool:
    """Whether counters and histograms say when they were made: what prometheus_client was told, by whatever way."""
    (family,) = _Counter("probe", "Tells how counters are shown.", registry=None).collect()
    return any(sample.name.endswith("_created") for sample in family.samples)
