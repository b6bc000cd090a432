"""The edges that control keeps: which are new, which are gone, which become rows, and which have no room. No I/O.

Theory of operation
1. An edge becomes a row when control sees it first, when it is gone, when it is back, and every STORED_EVERY between.
2. An edge is gone if no look has shown it for GONE_AFTER: gateways report seldom if they have many clients, and a
   control that begins to lead hears of clients after some seconds.
3. A bound holds. If it is reached, a new edge takes the place of the edge that has been gone for longest. If none is
   gone, the new edge is left out.
4. PostgreSQL can't index long names, and can't store the character NUL. Edges with such names are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from services.control.domain.lineage.edges import Edge, Node

STORED_EVERY: Final = timedelta(minutes=5)
GONE_AFTER: Final = timedelta(seconds=60)
LONGEST_NAME: Final = 500
"""Characters. An entry of PostgreSQL's index has 2,700 bytes at most, and a character 4."""
_NUL: Final = "\0"


@dataclass(frozen=True, slots=True)
class Seen:
    """An edge, and the first and last time that a look showed it."""

    edge: Edge
    first: datetime
    last: datetime
    present: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """The consequences of a look."""

    written: tuple[Seen, ...]
    deleted: tuple[Edge, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Look:
    """One look of control: its time, the edges that are kept, those left out, and why edges may be missing."""

    time: datetime
    edges: int = 0
    left_out: int = 0
    problem: str = ""


@dataclass(slots=True)
class _Kept:
    seen: Seen
    stored: datetime


@dataclass(slots=True)
class Memory:
    """All kept edges."""

    most: int
    kept_for: timedelta
    _known: dict[Edge, _Kept] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def recall(self, rows: Iterable[Seen], now: datetime) -> None:
        """Begins with the rows that a control has stored. The edges of the others count as seen now, for GONE_AFTER."""
        self._known = {each.edge: _Kept(replace(each, last=now) if each.present else each, each.last) for each in rows}

    def look(self, shown: Iterable[Edge], now: datetime) -> Changes:
        """Takes the edges of a look."""
        edges = set(shown)
        written = [self._stored(edge, now) for edge in edges if self._is_due(edge, now)]
        written += [self._stored(edge, now) for edge in list(self._gone(now))]
        new = sorted(edge for edge in edges if edge not in self._known)
        storable = [edge for edge in new if _fits(edge.source) and _fits(edge.target)]
        old = self._too_old(now)
        missing = len(storable) + len(self._known) - self.most
        deleted = list(dict.fromkeys([*old, *self._oldest(missing)]))
        for edge in deleted:
            del self._known[edge]
        taken = storable[: max(0, self.most - len(self._known))]
        for edge in taken:
            self._known[edge] = _Kept(Seen(edge, now, now, present=True), now)
            written.append(self._known[edge].seen)
        return Changes(tuple(written), tuple(deleted), len(new) - len(taken))

    def _is_due(self, edge: Edge, now: datetime) -> bool:
        """Notes that an edge is there. Whether it has to become a row again."""
        kept = self._known.get(edge)
        if kept is None:
            return False
        was_present = kept.seen.present
        kept.seen = replace(kept.seen, last=now, present=True)
        return not was_present or now - kept.stored >= STORED_EVERY

    def _gone(self, now: datetime) -> Iterator[Edge]:
        for edge, kept in self._known.items():
            if kept.seen.present and now - kept.seen.last >= GONE_AFTER:
                kept.seen = replace(kept.seen, present=False)
                yield edge

    def _stored(self, edge: Edge, now: datetime) -> Seen:
        kept = self._known[edge]
        kept.stored = now
        return kept.seen

    def _too_old(self, now: datetime) -> list[Edge]:
        return [edge for edge, kept in self._known.items() if now - kept.seen.last > self.kept_for]

    def _oldest(self, number: int) -> list[Edge]:
        """At most so many edges that are gone, the longest first: those that are too old come before all others."""
        if number <= 0:
            return []
        gone = [kept.seen for kept in self._known.values() if not kept.seen.present]
        return [each.edge for each in sorted(gone, key=lambda each: (each.last, each.edge))[:number]]


def _fits(node: Node) -> bool:
    return len(node.name) <= LONGEST_NAME and _NUL not in node.name
