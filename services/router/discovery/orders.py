"""Orders and answers as they stand in discovery.proto."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from mesh import durations
from mesh.routing import RoutingTable
from mesh.routing.delta import delta_between
from mesh.routing.table_bytes import TableBytes, field
from mesh.rpc import admin, discovery
from services.router import metrics
from services.router.discovery.member import (
    Answer,
    Answered,
    Apply,
    Divide,
    Hold,
    Order,
    ProtocolError,
    Release,
    Switch,
    Try,
)

REMEMBERED_TABLES = 4
"""Tables kept for the next member: those in force and pending, now and just before."""
REMEMBERED_DELTAS = 16
"""From each of these tables to each other one."""

PART_BYTES = 64 * 1024
"""A gateway parses a message of a whole table at once, in a tenth of a millisecond for so many bytes."""

PHASES = {
    Answer.APPLIED: admin.MEMBER_PHASE_APPLIED,
    Answer.HELD: admin.MEMBER_PHASE_HELD,
    Answer.TRYING: admin.MEMBER_PHASE_TRYING,
    Answer.REFUSED: admin.MEMBER_PHASE_REFUSED,
}
_ANSWERS = {phase: answer for answer, phase in PHASES.items() if answer is not Answer.REFUSED}


@dataclass(slots=True)
class _Known:
    """A table and its digest."""

    table: RoutingTable
    digest: bytes
    parts: list[bytes] | None = None
    """Its bytes in parts, once a member needs the whole table."""


class OrderEncoder:
    """Tables as orders carry them. All members get the same few tables and deltas: each is encoded once."""

    def __init__(self) -> None:
        self._bytes = TableBytes()
        self._tables: deque[_Known] = deque(maxlen=REMEMBERED_TABLES)
        self._deltas: deque[tuple[bytes, bytes, bytes | None]] = deque(maxlen=REMEMBERED_DELTAS)
        """The digests of two tables, and the delta between them; None where the whole table is better."""

    def known(self, table: RoutingTable) -> _Known:
        for known in self._tables:
            if known.table is table:
                return known
        self._tables.append(_Known(table, self._bytes.digest(table)))
        return self._tables[-1]

    def with_digest(self, digest: bytes) -> _Known | None:
        """One of the last tables."""
        return next((known for known in self._tables if known.digest == digest), None)

    def parts(self, known: _Known) -> list[bytes]:
        """The whole table: messages of about PART_BYTES which, joined, are one. The first has the revision alone."""
        if known.parts is None:
            revision, *rest = self._bytes.pieces(known.table)
            known.parts = [revision, *_gathered(rest)]
        return known.parts

    def delta(self, before: _Known, after: _Known) -> bytes | None:
        """The delta between two tables; None where the whole table is better."""
        for base, digest, encoded in self._deltas:
            if (base, digest) == (before.digest, after.digest):
                return encoded
        delta = delta_between(before.table, after.table)
        if delta is None:
            encoded = None
        else:
            delta.base, delta.digest = before.digest, after.digest
            encoded = delta.SerializeToString()
        self._deltas.append((before.digest, after.digest, encoded))
        return encoded


class OrderStream:
    """The orders of one stream as bytes of WatchResponse, passed in as they are sent.

    A member that reads deltas has the table of the order before, so the next order says what differs.
    """

    def __init__(
        self,
        encoder: OrderEncoder,
        *,
        reads_deltas: bool = False,
        reads_parts: bool = False,
        table_digest: bytes = b"",
    ) -> None:
        """`reads_deltas`, `reads_parts`, `table_digest`: as in the member's Hello."""
        self._encoder = encoder
        self._reads_deltas = reads_deltas
        self._reads_parts = reads_parts
        self._runs = table_digest
        self._sent: _Known | None = None

    def messages(self, order: Order) -> Iterator[bytes]:
        """The order, after the parts of its table if the table is whole and does not fit into one message."""
        match order:
            case Apply(table):
                name, encoded = yield from self._table(table)
                yield field(discovery.WatchResponse, "apply_delta" if name == "delta" else "apply", encoded)
            case Hold(table, hold_ms):
                hold = discovery.HoldOrder(timeout=durations.of_ms(hold_ms)).SerializeToString()
                hold += field(discovery.HoldOrder, *(yield from self._table(table)))
                yield field(discovery.WatchResponse, "hold", hold)
            case Try(table, permille):
                canary = discovery.CanaryOrder(permille=permille).SerializeToString()
                canary += field(discovery.CanaryOrder, *(yield from self._table(table)))
                yield field(discovery.WatchResponse, "canary", canary)
            case Switch(revision, producers):
                switch = discovery.SwitchOrder(revision=revision, producers=producers)
                yield discovery.WatchResponse(switch=switch).SerializeToString()
            case Release(revision):
                yield discovery.WatchResponse(release=discovery.ReleaseOrder(revision=revision)).SerializeToString()
            case Divide(parts):
                yield discovery.WatchResponse(quota_parts=parts).SerializeToString()

    def _table(self, table: RoutingTable) -> Generator[bytes, None, tuple[str, bytes]]:
        """The field that the table takes in its order, and its bytes, after the parts that go before the order."""
        after, before = self._encoder.known(table), self._sent
        if before is None and self._runs:
            before = self._encoder.with_digest(self._runs)
        encoded = self._encoder.delta(before, after) if self._reads_deltas and before is not None else None
        self._sent = after
        if encoded is not None:
            metrics.table_bytes.labels("delta").inc(len(encoded))
            return "delta", encoded
        revision, *parts = self._encoder.parts(after)
        metrics.table_bytes.labels("table").inc(sum(map(len, parts), len(revision)))
        if not self._reads_parts or len(parts) == 1:
            return "table", b"".join((revision, *parts))
        yield from (field(discovery.WatchResponse, "part", part) for part in parts)
        return "table", revision


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces joined to larger ones, each as small as PART_BYTES and its last piece allow."""
    gathered: list[bytes] = []
    for piece in pieces:
        gathered.append(piece)
        if sum(map(len, gathered)) >= PART_BYTES:
            yield b"".join(gathered)
            gathered = []
    if gathered:
        yield b"".join(gathered)


def answered(request: discovery.WatchRequest, at: float) -> Answered:
    """An ack or nack as the state machine hears it."""
    if request.WhichOneof("kind") == "nack":
        return Answered(request.nack.revision, Answer.REFUSED, at, request.nack.reason)
    answer = _ANSWERS.get(request.ack.phase)
    if answer is None:
        raise ProtocolError(
            f"ack of revision {request.ack.revision} with phase {request.ack.phase}; due is APPLIED, HELD or TRYING"
        )
    return Answered(request.ack.revision, answer, at)
