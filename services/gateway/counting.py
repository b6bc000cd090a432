"""Counters of frequent events: each event adds to a plain number, which scrapes collect.

The counters of prometheus_client take a lock and some calls for each addition: five additions were a fifth of our own
code for a Produce. Only the event loop adds to the counters here, so they need no lock.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry


class Count:
    """One number: `count.total += 1`."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Counts(Collector):
    """Numbers by the values of labels."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry = REGISTRY
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._counts: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: str) -> Count:
        """The number of these label values; code that counts often should keep it."""
        if len(values) != len(self._labels):
            raise ValueError(f"{self._name} has labels {self._labels}, not {len(values)} of them")
        return self._counts.setdefault(values, Count())

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in list(self._counts.items()):
            family.add_metric(values, count.total)
        yield family
