"""Compares what is stored with the log: the checks behind `kafka-mesh verify-log`. No I/O.

Theory of operation
1. `LogCheck` goes through the log event by event. It follows the chain of hashes, compares the columns of each row with
   the event in it, and folds: the view, and the rows of every projection.
2. If a link does not hold, the event before it counts as changed: the next event holds another hash of it. If the next
   link does not hold either, the event between the two links explains both.
3. The first event with a hash covers all events before it, which have none. Only mesh.events shows which of
   them was changed.
4. With a certificate, control signs events. A signature vouches for all events before it.
5. A gap, or bytes that are no event, ends the folding, but not the check of the chain. Projections are then not
   compared, for their right content is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from hashlib import sha256
from typing import Any

from google.protobuf.json_format import Error as JsonError
from google.protobuf.message import DecodeError
from sqlalchemy import Table

from mesh.event_log import Assembler, Chain, DamagedPieceError, Signatures, SignedEnd, upcast
from mesh.event_log.pieces import Headers
from mesh.rpc import events
from services.control.domain.view import MeshView, ViewFolding
from services.control.store import schema
from services.control.store.log import columns_of
from services.control.store.projections import BY_EVENTS, OF_VIEWS, Amend, Put, changes_by
from services.control.store.rule_versions import VersionRows
from services.control.store.statements import Row, key_of

HASH_BYTES = 32
NONSENSE = (ValueError, LookupError, OverflowError, JsonError)
"""Errors from events whose bytes were changed into something that no event can be."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A stored value that is not what it should be, with its place."""

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """A row of the log."""

    position: int
    stream: str
    stream_version: int
    kind: str
    time: datetime
    actor: str
    body: bytes
    payload: Any

    def columns(self) -> Row:
        """The stored columns that should follow from the body."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "body"}


class LogCheck:
    """One walk through the log, from its first event."""

    def __init__(self, signatures: Signatures | None = None) -> None:
        """`signatures`: each event is signed from the first signature on, or a later event vouches for it."""
        self._signed_end = SignedEnd(signatures)
        self.chain = Chain()
        self.first_chained = 0
        """Position of the first event that holds a hash; 0 while there is none."""
        self.folds = True
        """Whether the folding goes on, so that the right content of projections is known."""
        self._folding = ViewFolding(MeshView())
        self._versions: dict[str, int] = {}
        self._rows: dict[Table, dict[Any, Row]] = {table: {} for table in BY_EVENTS}
        self._rule_versions = VersionRows()
        self._suspect: Difference | None = None
        """The last event, while the link to it does not hold."""

    @property
    def view(self) -> MeshView:
        """The view that follows from the log up to here."""
        return self._folding.view

    def read(self, stored: StoredEvent) -> Iterator[Difference]:
        """Checks the next row, in the order of positions."""
        place = f"event {stored.position}"
        missing = stored.position - self.chain.position - 1
        if missing:
            self.folds = False
            yield Difference(place, f"follows event {self.chain.position}: {_count(missing, 'event')} missing")
        try:
            event = upcast(stored.body)
        except (DecodeError, ValueError) as error:
            self.folds = False
            self.chain = Chain(stored.position, sha256(stored.body).digest())
            yield Difference(place, f"its bytes are no event: {error}")
            return
        yield from self._link(event, stored.body, after_gap=bool(missing))
        self._signed_end.take(event, stored.body)
        try:
            as_written = columns_of(events.Event.FromString(stored.body))  # by its release: not brought up to date
            yield from _differing_columns(place, as_written, stored.columns())
            if self.folds:
                yield from self._fold(event)
        except NONSENSE as error:
            self.folds = False
            yield Difference(place, f"says what no event can say: {error!r}")

    def end(self, head: Chain) -> Iterator[Difference]:
        """Checks the end of the log, as `log_head` holds it."""
        if head.position == self.chain.position:
            yield from self._judge("log_head", fits=head.hash == self.chain.hash)
        else:
            yield Difference("log_head", f"says that the log ends at {head.position}; it ends at {self.chain.position}")
        yield from self._clear_suspect()
        if self._signed_end.unsigned_from:
            yield Difference(
                f"event {self._signed_end.unsigned_from}",
                f"is the first that control's signatures do not vouch for: {self._signed_end.reason}",
            )

    def rows(self) -> Mapping[Table, Mapping[Any, Row]]:
        """The rows that every projection should hold, by primary key."""
        of_views = {each.table: each.rows(self.view) for each in OF_VIEWS}
        return {**self._rows, **of_views, schema.rule_versions: self._rule_versions.by_name}

    def _link(self, event: events.Event, body: bytes, *, after_gap: bool) -> Iterator[Difference]:
        if event.previous_hash and not self.first_chained:
            self.first_chained = event.position
        if not after_gap:
            yield from self._judge(f"event {event.position}", fits=self.chain.fits(event))
        self.chain = self.chain.after(event, body)

    def _judge(self, witness: str, *, fits: bool) -> Iterator[Difference]:
        """Judges the last event by the hash in `witness`; the result clears or confirms the suspicion before it."""
        last = self.chain.position
        is_chained = last == 1 or 0 < self.first_chained <= last
        place = f"event {last}" if is_chained else f"one of the events 1 to {last}"
        if fits:
            yield from self._clear_suspect()
        elif self._suspect is None:
            self._suspect = Difference(place, f"was changed: {witness} holds another hash of it")
        else:
            self._suspect = None
            yield Difference(place, f"was changed: {witness} holds another hash of it, and it one of the event before")

    def _clear_suspect(self) -> Iterator[Difference]:
        if self._suspect is not None:
            yield self._suspect
        self._suspect = None

    def _fold(self, event: events.Event) -> Iterator[Difference]:
        version = self._versions.get(event.stream, 0) + 1
        if event.stream_version != version:
            yield Difference(
                f"event {event.position}", f"is number {event.stream_version} of {event.stream}, {version} was expected"
            )
        self._versions[event.stream] = event.stream_version
        before, rollout = self._folding.rules_revision, self._folding.rollout
        self._folding.fold(event)
        if self._folding.rules_revision > before:
            self._rule_versions.change(event if event.HasField("rule_set_changed") or rollout is None else rollout)
        for change in changes_by(event):
            rows = self._rows[change.table]
            match change:
                case Put(table, row):
                    rows[row[key_of(table).name]] = row
                case Amend(_, key, values) if key in rows:
                    rows[key] = {**rows[key], **values}


class PublishedLog:
    """The content of mesh.events: the hash of each event, by position."""

    def __init__(self) -> None:
        self._hashes = bytearray()
        self._assembler = Assembler()

    @property
    def position(self) -> int:
        """Position of the last event there."""
        return len(self._hashes) // HASH_BYTES

    def read(self, offset: int, value: bytes, headers: Headers = ()) -> Iterator[Difference]:
        """Checks the next record. A record may repeat an event, if the bytes are the same."""
        place = f"mesh.events, offset {offset}"
        try:
            body = self._assembler.take(value, headers)
            if body is None:
                return
            position = events.Event.FromString(body).position
        except (DamagedPieceError, DecodeError) as error:
            yield Difference(place, f"its bytes are no event: {error}")
            return
        missing = position - self.position - 1
        if missing > 0:
            yield Difference(
                place, f"event {position} follows event {self.position}: {_count(missing, 'event')} missing"
            )
            self._hashes.extend(bytes(HASH_BYTES * missing))
        found = sha256(body).digest()
        if position > self.position:
            self._hashes.extend(found)
        elif self._hash_of(position) != found:
            yield Difference(place, f"event {position} is another one than before")

    def compare(self, stored: StoredEvent) -> Iterator[Difference]:
        """Compares an event of the log with the published event."""
        if stored.position <= self.position and self._hash_of(stored.position) != sha256(stored.body).digest():
            yield Difference(f"event {stored.position}", "mesh.events has another one")

    def end(self, position: int) -> Iterator[Difference]:
        """Checks the end of mesh.events; `position` is the position of the last event in the log."""
        if self.position > position:
            yield Difference("mesh.events", f"goes on to event {self.position}; the log ends at {position}")

    def _hash_of(self, position: int) -> bytes:
        return bytes(self._hashes[HASH_BYTES * (position - 1) : HASH_BYTES * position])


def differing_rows(table: Table, wanted: Mapping[Any, Row], found: Sequence[Row]) -> Iterator[Difference]:
    """Rows that are absent, too many, or other than the log says."""
    key = key_of(table).name
    stored = {row[key]: row for row in found}
    for name in sorted(wanted.keys() | stored.keys(), key=str):
        place = f"{table.name} {name}"
        if name not in stored:
            yield Difference(place, "is missing; the log has it")
        elif name not in wanted:
            yield Difference(place, "is not in the log")
        else:
            yield from _differing_columns(place, wanted[name], stored[name])


def _differing_columns(place: str, wanted: Row, stored: Row) -> Iterator[Difference]:
    for column, value in stored.items():
        if column not in wanted or wanted[column] != value:
            yield Difference(place, f"{column} is {value!r}; by the log it is {wanted.get(column)!r}")


def _count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"
