"""Counters and times of frequent events: each event adds to plain numbers, which scrapes collect.

The counters of prometheus_client take a lock and some calls for each addition: five additions were a fifth of our own
code for a Produce. Only the event loop adds to the counters here, so they need no lock.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from time import time
from typing import Final

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar

from mesh.exposition.native import PER_OCTAVE, bucket_of, native_sample

UNIT_S: Final = 0.00005
"""The first bound of a histogram: about what the gateway takes for a small Produce."""
BUCKETS: Final = 20
"""Each bound is twice the one before. The last one is 26 s."""
BOUNDS: Final = (*(str(UNIT_S * 2**place) for place in range(BUCKETS)), "+Inf")
BELOW: Final = 5
"""Octaves (factors of two) of a histogram below `UNIT_S`, for native buckets alone ..."""
OCTAVES: Final = BELOW + BUCKETS + 6
"""... and all of them: the last one ends at 28 minutes."""
FIRST_S: Final = UNIT_S / 2**BELOW
"""The end of the first octave, which begins at 0."""
CELLS: Final = PER_OCTAVE + 1
"""Cells of an octave. Cells end at the bounds of native buckets and, once in an octave, at a bound of `BOUNDS`. So each
cell is part of one bucket of either kind, and an observation adds to one number alone."""
TOP: Final = bucket_of(FIRST_S)
"""The native bucket of the first octave's last cell."""
ROOT: Final = 0.5 ** (1 / PER_OCTAVE)
EDGE: Final = 2 ** ((TOP - 1) / PER_OCTAVE) / FIRST_S
"""The lower bound of an octave's last cell, to the end of the octave."""
LAST_OCTAVE: Final = OCTAVES - 1
_BOUNDS_S: Final = [UNIT_S * 2**place for place in range(BUCKETS)]


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


class Answered(Count):
    """The answered requests of one client in one API and version, which count among those of all clients, too."""

    __slots__ = ("of_all", "times")

    def __init__(self, of_all: Count, times: "Times") -> None:
        self.total = 0
        self.of_all = of_all
        self.times = times


class Histogram:
    """Seconds by cells. Only the event loop adds to it."""

    __slots__ = ("_numbers", "cells", "exemplars", "seconds")

    def __init__(self) -> None:
        self.cells = array("q", bytes(8 * OCTAVES * CELLS))
        """Octave by octave; within each, the cells from the last to the first."""
        self._numbers = self.cells
        """The same, without objects of Python where this is compiled."""
        self.seconds = 0.0
        self.exemplars: dict[int, Exemplar] = {}
        """The last traced observation of each bucket of `BOUNDS`."""

    def observe(self, seconds: float) -> None:
        part, octave, cell, edge = seconds / FIRST_S, 0, 0, EDGE
        while part > 1.0 and octave < LAST_OCTAVE:
            part *= 0.5
            octave += 1
        while part <= edge and cell < PER_OCTAVE:
            edge *= ROOT
            cell += 1
        self._numbers[octave * CELLS + cell] += 1
        self.seconds += seconds

    def name(self, seconds: float, labels: dict[str, str]) -> None:
        """An observation that was counted belongs to the span with these labels."""
        self.exemplars[bisect_left(_BOUNDS_S, seconds)] = Exemplar(labels, seconds, time())


def classic(cells: Sequence[int]) -> list[int]:
    """How many observations of a histogram fell into each bucket of `BOUNDS` alone."""
    of_octaves = [sum(cells[at : at + CELLS]) for at in range(0, OCTAVES * CELLS, CELLS)]
    within = of_octaves[BELOW + 1 : BELOW + BUCKETS]
    return [sum(of_octaves[: BELOW + 1]), *within, sum(of_octaves[BELOW + BUCKETS :])]


def native(cells: Sequence[int]) -> dict[int, int]:
    """The same by native buckets."""
    found: dict[int, int] = {}
    for place, count in enumerate(cells):
        if count:
            octave, cell = divmod(place, CELLS)
            bucket = TOP + octave * PER_OCTAVE - cell
            found[bucket] = found.get(bucket, 0) + count
    return found


class Times:
    """The times of the answered requests of one API: in the gateway, and upstream."""

    __slots__ = ("gateway", "upstream")

    def __init__(self, gateway: Histogram, upstream: Histogram) -> None:
        self.gateway = gateway
        self.upstream = upstream

    def took(self, seconds: float, upstream_s: float) -> None:
        """A request took `seconds` in all, and `upstream_s` of them passed while clusters were asked."""
        self.gateway.observe(seconds - upstream_s)
        self.upstream.observe(upstream_s)


class Histograms(Collector):
    """Histograms by the value of one label."""

    def __init__(self, name: str, documentation: str, label: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = (label,)
        self._histograms: dict[str, Histogram] = {}
        registry.register(self)

    def of(self, value: str) -> Histogram:
        """The histogram of this value; code that observes often should keep it."""
        return self._histograms.setdefault(value, Histogram())

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        for value, histogram in list(self._histograms.items()):
            named, cells = dict(histogram.exemplars), list(histogram.cells)  # the loop goes on adding
            buckets = [
                (bound, count, named[place]) if place in named else (bound, count)
                for place, (bound, count) in enumerate(zip(BOUNDS, accumulate(classic(cells)), strict=True))
            ]
            family.add_metric([value], buckets, histogram.seconds)
            labels = {self._labels[0]: value}
            family.samples.append(native_sample(self._name, labels, native(cells), histogram.seconds))
        yield family
