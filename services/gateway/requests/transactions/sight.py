"""How well one gateway sees the logs of transactions, and since when its readers wait; see `holding`. No I/O.

Its entries are about clusters of the mesh, and about decisions that are not carried out: both leave with their cause.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mesh.transactions import Decision, LogPlace

BLIND_S: Final = 10.0
"""Seconds for which readers get no records of transactions while a home's log can't be read. The election of a leader
takes less. Beyond that the other clusters' readers go on."""
RETRY_S: Final = 0.5
"""So long the gateway does not ask again for a log that it could not read."""
TELL_S: Final = 5.0
"""Seconds that a decision holds readers back before a log line names it."""


class KnownDecision(NamedTuple):
    """A decision: its home, and its record's key and value. Both protocols together repeat no such pair."""

    home: str
    key: bytes
    value: bytes

    @classmethod
    def of(cls, home: str, decision: Decision) -> "KnownDecision":
        return cls(home, decision.key, decision.value)


@dataclass(frozen=True, slots=True)
class Holds:
    """The partitions that unfinished decisions hold back, as far as the logs were read."""

    by_place: Mapping[LogPlace, tuple[int, KnownDecision]]
    blind: bool = False
    """A decision may be unknown."""

    def stable(self, place: LogPlace) -> int | None:
        """The last stable offset to show at most; None for a partition that no decision holds back."""
        found = self.by_place.get(place)
        return None if found is None else found[0]


@dataclass(slots=True)
class Sight:
    """See above."""

    on_held: Callable[[str], None] = lambda reason: None
    """Counts answers of which a part was held back."""
    _blind_since: dict[str, float] = field(default_factory=dict)
    """By home."""
    _tried: dict[str, float] = field(default_factory=dict)
    _held_since: dict[KnownDecision, float] = field(default_factory=dict)
    _told: set[KnownDecision] = field(default_factory=set)
    _holds: tuple[object, Holds] = (None, Holds({}))
    """The last holds, and the state of the logs from which they follow."""

    def holds(self, state: object, make: Callable[[], Holds]) -> Holds:
        """The holds that follow from this state of the logs. Equal states have equal holds."""
        if self._holds[0] != state:
            self._holds = (state, make())
        return self._holds[1]

    def asks(self, home: str, now: float) -> bool:
        """Whether a reader may ask for the home's log now; then this counts as an attempt."""
        if home not in self._blind_since:
            return True
        if now - self._tried[home] < RETRY_S:
            return False
        self._tried[home] = now
        return True

    def read(self, home: str, now: float, *, found: bool) -> None:
        """The home's log was read to its end, or could not be."""
        if found:
            self._blind_since.pop(home, None)
        else:
            self._blind_since.setdefault(home, now)
            self._tried[home] = now

    def blind_for(self, home: str, now: float) -> float | None:
        """Seconds since the home's log could be read; None while it can."""
        since = self._blind_since.get(home)
        return None if since is None else now - since

    def keep(self, homes: Iterable[str], unfinished: Iterable[KnownDecision]) -> None:
        """Forgets other clusters and decisions."""
        for by_home in (self._blind_since, self._tried):
            for gone in by_home.keys() - set(homes):
                del by_home[gone]
        if self._held_since:
            for done in self._held_since.keys() - set(unfinished):
                del self._held_since[done]
            self._told &= self._held_since.keys()

    def held(self, decision: KnownDecision, now: float) -> float:
        """Seconds since the decision first held a reader back."""
        return now - self._held_since.setdefault(decision, now)

    def must_tell(self, decision: KnownDecision, now: float) -> bool:
        """Whether to write the log line about the decision: once."""
        if now - self._held_since.get(decision, now) < TELL_S or decision in self._told:
            return False
        self._told.add(decision)
        return True

    def longest_held(self, now: float) -> float:
        """Seconds; 0 if no reader is held back."""
        return max((now - since for since in self._held_since.values()), default=0.0)
