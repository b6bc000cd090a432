"""Adds latencies of many counters to the sketches of their sums at once. No I/O, no Spark.

Theory of operation
1. A counter of ten seconds has few latencies, so its sketch holds each latency itself. A sum takes the latencies of all
   its counters as numbers, in one call of C++, as if the sum had recorded the calls itself. To make an object of each
   sketch and merge it took six times as long.
2. This needs many sketches at a time. So a sum keeps its sketches waiting, and the fold settles all sums together.
3. Sketches without that plain form are deserialized and merged one by one: larger, foreign or broken sketches.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise

import datasketches
import numpy

from mesh.traffic.sketches import ACCURACY
from services.pipeline.traffic.sketches import Numbers, is_whole, plain


class Latencies:
    """The latencies of one sum."""

    __slots__ = ("sketch", "waiting")

    def __init__(self) -> None:
        self.sketch: datasketches.kll_floats_sketch | None = None
        self.waiting: list[bytes] = []
        """Sketches that are not merged yet. The code that adds sketches bounds their number."""

    def merge(self, sketch: datasketches.kll_floats_sketch) -> None:
        """Merges a sketch.

        This object may keep the sketch and change it: the others are merged into the first sketch.
        """
        if self.sketch is None and sketch.k == ACCURACY:
            self.sketch = sketch
            return
        self._ours().merge(sketch)

    def update(self, milliseconds: Numbers) -> None:
        """Adds latencies as numbers."""
        self._ours().update(milliseconds)

    def written(self) -> bytes | None:
        """The settled latencies; None if there are none."""
        return None if self.sketch is None else bytes(self.sketch.serialize())

    def _ours(self) -> datasketches.kll_floats_sketch:
        if self.sketch is None:
            self.sketch = datasketches.kll_floats_sketch(ACCURACY)
        return self.sketch


def settle(sums: Iterable[Latencies]) -> None:
    """Merges all waiting sketches. An empty or broken sketch adds nothing."""
    owners = [each for each in sums if each.waiting]
    sketches = [sketch for each in owners for sketch in each.waiting]
    if not sketches:
        return
    milliseconds, counts = plain(sketches)
    ends = list(accumulate((len(each.waiting) for each in owners), initial=0))
    for each in owners:
        each.waiting = []
    for number in numpy.flatnonzero(counts == 0).tolist():
        if (found := sound(sketches[number])) is not None:
            owners[numpy.searchsorted(ends, number, "right") - 1].merge(found)
    until = numpy.concatenate(([0], counts.cumsum()))[ends].tolist()
    for each, (begin, end) in zip(owners, pairwise(until), strict=True):
        if begin < end:
            its = milliseconds[begin:end]
            its.sort()  # numpy sorts many times faster than the sketch, which then gets sorted numbers
            each.update(its)


def sound(latency: bytes) -> datasketches.kll_floats_sketch | None:
    """The sketch; None for an empty or broken sketch."""
    if not is_whole(latency):
        return None
    try:
        return datasketches.kll_floats_sketch.deserialize(latency)
    except (RuntimeError, ValueError, IndexError):
        return None
