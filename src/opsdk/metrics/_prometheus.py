"""What we count, as prometheus_client shows it. Loaded by the first scrape, or with a registry of the program's own.

It is up to 40 ms of a start and 5 MB, which nothing needs before somebody asks for numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from typing_extensions import override

from opsdk.metrics._families import Number, Reading, Source, Spread

__all__ = ["choose_encoder", "generate_latest", "gzip_accepted", "new_registry", "register"]


def new_registry() -> CollectorRegistry:
    """A registry with the process's and Python's own metrics."""
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def register(sources: Iterable[Source], registry: CollectorRegistry) -> None:
    """Have a registry show them.

    Raises:
        ValueError: It shows one of these names already.
    """
    for source in sources:
        registry.register(_Shown(source))


@final
class _Shown(Collector):
    def __init__(self, source: Source) -> None:
        self._source = source

    def describe(self) -> Iterator[Metric]:
        """The families, without samples: the registry checks their names."""
        return (_metric(reading, dated=False) for reading in self._source.readings(values=False))

    @override
    def collect(self) -> Iterator[Metric]:
        dated = _are_dated()
        return (_metric(reading, dated=dated) for reading in self._source.readings())


def _metric(reading: Reading, *, dated: bool) -> Metric:
    match reading.type:
        case "counter":
            counter = CounterMetricFamily(reading.name, reading.documentation, labels=reading.labels)
            for labels, value in reading.values:
                created = value.created if dated and isinstance(value, Number) else None
                counter.add_metric(labels, _plain(value), created=created)
            return counter
        case "gauge":
            gauge = GaugeMetricFamily(reading.name, reading.documentation, labels=reading.labels)
            for labels, value in reading.values:
                gauge.add_metric(labels, _plain(value))
            return gauge
        case "histogram":
            histogram = HistogramMetricFamily(reading.name, reading.documentation, labels=reading.labels)
            for labels, value in reading.values:
                if isinstance(value, Spread):
                    bounds = [*(repr(float(bound)) for bound in value.bounds), "+Inf"]  # so for bounds below a million
                    histogram.add_metric(labels, list(zip(bounds, value.up_to(), strict=True)), value.sum)
                    if dated:
                        named = dict(zip(reading.labels, labels, strict=True))
                        histogram.samples.append(Sample(f"{reading.name}_created", named, value.created))
            return histogram


def _plain(value: float | Number | Spread) -> float:
    match value:
        case Number():
            return value.value
        case Spread():
            return value.sum
        case _:
            return value


def _are_dated() -> bool:
    """Whether counters and histograms say when they were made: what prometheus_client was told, by whatever way."""
    (family,) = Counter("probe", "Tells how counters are shown.", registry=None).collect()
    return any(sample.name.endswith("_created") for sample in family.samples)
