"""Latencies of many counters, brought into the sketches of their sums at once. No I/O, no Spark.

Theory of operation
1. A counter of ten seconds has few latencies, so its sketch holds each of them as it is. A sum takes those of all its
   counters as numbers, in one call of C++, as if it had seen the calls itself: to make each sketch an object, and merge
   it, took six times as long.
2. That asks for many sketches at a time. So a sum lets them wait, and whoever folds settles all sums together.
3. What is not of that plain form is made and merged one by one: larger sketches, foreign ones, broken ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise

import datasketches
import numpy

from mesh.traffic.sketches import ACCURACY
from services.pipeline.traffic.sketch_form import Numbers, is_whole, plain


class Latencies:
    """Of one sum."""

    __slots__ = ("sketch", "waiting")

    def __init__(self) -> None:
        self.sketch: datasketches.kll_floats_sketch | None = None
        self.waiting: list[bytes] = []
        """Sketches that came, and are not in ours yet. Who puts them there bounds them."""

    def merge(self, sketch: datasketches.kll_floats_sketch) -> None:
        """Adds latencies. The sketch is ours from now on: the first one is what the others are merged into."""
        if self.sketch is None and sketch.k == ACCURACY:
            self.sketch = sketch
            return
        self._ours().merge(sketch)

    def update(self, milliseconds: Numbers) -> None:
        """Adds latencies as they are."""
        self._ours().update(milliseconds)

    def written(self) -> bytes | None:
        """The latencies that are settled; None for none."""
        return None if self.sketch is None else bytes(self.sketch.serialize())

    def _ours(self) -> datasketches.kll_floats_sketch:
        if self.sketch is None:
            self.sketch = datasketches.kll_floats_sketch(ACCURACY)
        return self.sketch


def settle(sums: Iterable[Latencies]) -> None:
    """Brings all that waits into the sketches. What is empty or broken counts as none."""
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
            its.sort()  # numpy sorts many times faster than the sketch, which finds them in order then
            each.update(its)


def sound(latency: bytes) -> datasketches.kll_floats_sketch | None:
    """The sketch; None for one that is empty or broken, which counts as none."""
    if not is_whole(latency):
        return None
    try:
        return datasketches.kll_floats_sketch.deserialize(latency)
    except (RuntimeError, ValueError, IndexError):
        return None
