"""Traffic as it is counted: records, bytes, calls, errors and latencies of each combination of who and what.

Theory of operation
1. `Counts` belongs to one thread. To count is a look-up and some additions; nothing is made but for a new combination.
   A caller that counts often keeps the tally of its combination, and saves the look-up, until the tally has ended.
2. `take` ends an interval: all that was counted goes with it, and counting begins anew. Nothing is carried over, so
   the sum of all reports is the traffic, whichever report came late.
3. Combinations are bounded, because clients choose their names. Further combinations are counted together under empty
   names, with the number of their calls: sums stay right, only the names are lost.
4. Latencies are kept as they came, a few hundred of them; more are folded into a sketch, whose size is bounded.
"""

from __future__ import annotations

import builtins
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


class Tally(Protocol):
    """The counts of one combination, in one interval."""

    records: int
    bytes: int
    calls: int
    errors: int
    ended: bool
    """The interval is over: whoever has kept the tally asks for another one."""

    def add(self, records: int, size: int, errors: int) -> None:
        """Adds a call."""

    def took(self, milliseconds: float) -> None:
        """Adds the latency of a call."""

    @property
    def recent(self) -> array[float]:
        """Latencies that are not in the sketch yet."""

    def latencies(self) -> builtins.bytes:
        """All latencies as a sketch; empty for none."""


class PlainTally:
    """As it is kept where nothing is compiled."""

    __slots__ = ("_new_sketch", "_sketch", "bytes", "calls", "ended", "errors", "recent", "records")

    def __init__(self, new_sketch: NewSketch) -> None:
        self._new_sketch = new_sketch
        self.records = 0
        self.bytes = 0
        self.calls = 0
        self.errors = 0
        self.ended = False
        self.recent: array[float] = array("f")
        self._sketch: Sketch | None = None

    def add(self, records: int, size: int, errors: int) -> None:
        self.records += records
        self.bytes += size
        self.calls += 1
        self.errors += errors

    def took(self, milliseconds: float) -> None:
        self.recent.append(milliseconds)
        if len(self.recent) >= FOLDED_VALUES:
            self._fold()

    def latencies(self) -> bytes:
        if self.recent:
            self._fold()
        return b"" if self._sketch is None else self._sketch.written()

    def _fold(self) -> None:
        if self._sketch is None:
            self._sketch = self._new_sketch()
        self._sketch.fold(self.recent)
        self.recent = array("f")


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

    __slots__ = ("_most", "_new_sketch", "_start", "_tallies", "new_tally", "receipts")

    def __init__(self, new_sketch: NewSketch, start: datetime, most: int = MOST_COMBINATIONS) -> None:
        self._new_sketch = new_sketch
        self._start = start
        self._most = most
        self._tallies: dict[Key, Tally] = {}
        self.new_tally: Callable[[NewSketch], Tally] = PlainTally
        self.receipts = Receipts()

    def count(
        self, who: Key, milliseconds: float | None = None, records: int = 0, size: int = 0, errors: int = 0
    ) -> None:
        """Adds a call to a combination. `milliseconds`: how long it took, where that is known; `errors`: 1 if it has
        failed, or a part of it."""
        tally = self.of(who)
        tally.add(records, size, errors)
        if milliseconds is not None:
            tally.took(milliseconds)

    def of(self, who: Key) -> Tally:
        """The tally of a combination in the interval that goes on; that of `OVERFLOW` if it finds no room."""
        tally = self._tallies.get(who)
        if tally is None:
            if len(self._tallies) >= self._most:
                who = OVERFLOW
            tally = self._tallies.get(who)
            if tally is None:
                tally = self._tallies[Combination._make(who)] = self.new_tally(self._new_sketch)
        return tally

    def take(self, end: datetime) -> Interval:
        """The interval that ends now; the next one begins. A clock that was put back makes it short, not negative."""
        start, receipts = min(self._start, end), self.receipts.take()
        overflow = self._tallies.get(OVERFLOW)
        overflowed = 0 if overflow is None else overflow.calls
        taken = Interval(start, end, self._tallies, overflowed, receipts)  # type: ignore[arg-type]  # made by `of`
        for tally in self._tallies.values():
            tally.ended = True
        self._start, self._tallies = end, {}
        return taken

    def __len__(self) -> int:
        """Combinations of the interval that goes on."""
        return len(self._tallies)


def bounded(name: str) -> str:
    """A name that somebody else chose, as far as it is kept."""
    return name if len(name) <= MOST_NAME_CHARACTERS else name[:MOST_NAME_CHARACTERS]
