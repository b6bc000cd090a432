"""Traffic as it is counted: records, bytes, calls, errors and latencies of each combination of who and what.

Theory of operation
1. `Counts` belongs to one thread. To count is a look-up and some additions; nothing is made but for a new combination.
2. `take` ends an interval: all that was counted goes with it, and counting begins anew. Nothing is carried over, so
   the sum of all reports is the traffic, whichever report came late.
3. Combinations are bounded, because clients choose their names. Further combinations are counted together under empty
   names, with the number of their calls: sums stay right, only the names are lost.
4. Latencies are kept as they came, a few hundred of them; more are folded into a sketch, whose size is bounded.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from mesh.traffic.receipts import Reading, Receipts, Sent

MOST_COMBINATIONS = 5_000
"""Bound of one interval: at most some 30 MB while the interval lasts."""
FOLDED_VALUES = 512
"""Latencies that are folded into a sketch at once: together they cost a fifth of what they cost one by one."""
MOST_NAME_CHARACTERS = 256
"""Bound of a name that a client chose."""


class Combination(NamedTuple):
    """Who, and what: the names of `TrafficCounter`, empty for none."""

    client: str = ""
    principal: str = ""
    topic: str = ""
    rule: str = ""
    cluster: str = ""
    api: str = ""


OVERFLOW = Combination()
"""Under which is counted what found no room."""

Key = tuple[str, str, str, str, str, str]
"""A `Combination`, or a tuple like it: half the price, where there is one for each request."""


class Sketch(Protocol):
    """Latencies of which there are many, in a bounded place."""

    def fold(self, milliseconds: array[float]) -> None:
        """Adds them."""

    def written(self) -> bytes:
        """As others can merge it."""


NewSketch = Callable[[], Sketch]


class Tally:
    """The counts of one combination."""

    __slots__ = ("bytes", "calls", "errors", "recent", "records", "sketch")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.calls = 0
        self.errors = 0
        self.recent: array[float] = array("f")
        """Latencies that are not in the sketch yet."""
        self.sketch: Sketch | None = None

    def fold(self, new_sketch: NewSketch) -> None:
        """Puts the recent latencies into the sketch."""
        if self.sketch is None:
            self.sketch = new_sketch()
        self.sketch.fold(self.recent)
        self.recent = array("f")

    def latencies(self, new_sketch: NewSketch) -> bytes:
        """All of them as a sketch; empty for none."""
        if self.recent:
            self.fold(new_sketch)
        return b"" if self.sketch is None else self.sketch.written()


@dataclass(frozen=True, slots=True)
class Interval:
    """The counts from `start` to `end`. They change no more."""

    start: datetime
    end: datetime
    tallies: Mapping[Combination, Tally]
    overflowed: int
    """Calls whose combination found no room."""
    receipts: Mapping[Reading, Sent] = field(default_factory=dict)


class Counts:
    """See above."""

    __slots__ = ("_most", "_new_sketch", "_overflowed", "_start", "_tallies", "receipts")

    def __init__(self, new_sketch: NewSketch, start: datetime, most: int = MOST_COMBINATIONS) -> None:
        self._new_sketch = new_sketch
        self._start = start
        self._most = most
        self._tallies: dict[Key, Tally] = {}
        self._overflowed = 0
        self.receipts = Receipts()

    def count(
        self, who: Key, milliseconds: float | None = None, records: int = 0, size: int = 0, errors: int = 0
    ) -> None:
        """Adds a call to a combination. `milliseconds`: how long it took, where that is known; `errors`: 1 if it has
        failed, or a part of it."""
        tally = self._tallies.get(who)
        if tally is None:
            tally = self._begun(who)
        tally.records += records
        tally.bytes += size
        tally.calls += 1
        tally.errors += errors
        if milliseconds is not None:
            recent = tally.recent
            recent.append(milliseconds)
            if len(recent) >= FOLDED_VALUES:
                tally.fold(self._new_sketch)

    def _begun(self, who: Key) -> Tally:
        if len(self._tallies) >= self._most:
            self._overflowed += 1
            who = OVERFLOW
        tally = self._tallies.get(who)
        if tally is None:
            tally = self._tallies[Combination._make(who)] = Tally()
        return tally

    def take(self, end: datetime) -> Interval:
        """The interval that ends now; the next one begins. A clock that was put back makes it short, not negative."""
        start, receipts = min(self._start, end), self.receipts.take()
        taken = Interval(start, end, self._tallies, self._overflowed, receipts)  # type: ignore[arg-type]  # made by _begun
        self._start, self._tallies, self._overflowed = end, {}, 0
        return taken

    def __len__(self) -> int:
        """Combinations of the interval that goes on."""
        return len(self._tallies)


def bounded(name: str) -> str:
    """A name that somebody else chose, as far as it is kept."""
    return name if len(name) <= MOST_NAME_CHARACTERS else name[:MOST_NAME_CHARACTERS]
