"""The calls of one client connection, for operators who want to know who does what, with which versions.

Each connection counts for itself what the metrics count for all clients. The rates are those of the time between two
looks (`measure`), so a request costs no more than its count.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from services.gateway.counting import Answered, Count


@dataclass(slots=True)
class Rates:
    """Requests and bytes of a connection in a second, in the time between the last two measurements."""

    requests: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0

    def add(self, other: "Rates") -> None:
        self.requests += other.requests
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


class Totals(NamedTuple):
    """Counts of what a client did."""

    requests: int = 0
    errors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def plus(self, other: "Totals", sign: int = 1) -> "Totals":
        return Totals(
            self.requests + sign * other.requests,
            self.errors + sign * other.errors,
            self.bytes_in + sign * other.bytes_in,
            self.bytes_out + sign * other.bytes_out,
        )


NOTHING = Totals()


@dataclass(slots=True)
class ClientCalls:
    """Since the connection was made."""

    since: float = 0.0
    """Seconds since 1970."""
    answered: dict[tuple[int, int], Answered] = field(default_factory=dict)
    """By API key and version."""
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Answers with an error code, by API key and code; an answer counts once for each code in it."""
    bytes_in: Count = field(default_factory=Count)
    bytes_out: Count = field(default_factory=Count)
    last: float = 0.0
    """The look that last found new answers, or the time at which the connection was made."""
    rates: Rates = field(default_factory=Rates)
    measured: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The counts of `answered` ..."""
    measured_errors: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """... and of `errors`, at the last look."""
    _looked: float = 0.0
    _before: tuple[int, int, int] = (0, 0, 0)
    _scraped: Totals = NOTHING

    def begin(self, now: float) -> None:
        """The connection is made."""
        self.since = self.last = self._looked = now

    def since_last_scrape(self) -> Totals:
        """The counts that are new. May be called from another thread than the one that counts."""
        requests = sum(count.total for count in list(self.answered.values()))
        now = Totals(requests, sum(list(self.errors.values())), self.bytes_in.total, self.bytes_out.total)
        before, self._scraped = self._scraped, now
        return NOTHING if now == before else now.plus(before, -1)

    def measure(self, now: float) -> None:
        """Reads the counts, and takes the rates since the last measurement."""
        seconds, before = now - self._looked, self._before
        self.measured = {which: count.total for which, count in self.answered.items()}
        self.measured_errors = dict(self.errors)
        counts = (sum(self.measured.values()), self.bytes_in.total, self.bytes_out.total)
        if seconds <= 0.0:  # a clock that was put back
            self._looked = now
            return
        self.rates = Rates(*((count - earlier) / seconds for count, earlier in zip(counts, before, strict=True)))
        if counts[0] != before[0]:
            self.last = now
        self._looked, self._before = now, counts
