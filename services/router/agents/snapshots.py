"""Snapshots: what a router has folded, as records of a compacted topic, and back. No I/O.

Theory of operation
1. A snapshot is a shortcut, never the only copy: whatever is wrong with one (absent, damaged, incomplete, of another
   format, of another log), an older one is taken, or the log is read from its beginning.
2. Compaction keeps the last record of each key. A snapshot's keys name one of `SLOTS` slots, which follows from its
   position: so an older one that is late, because its router was slow, does not take the place of a newer one, and a
   router that dies while it writes spoils one slot and not the others. The highest position counts, not the last
   record.
3. A slot's keys are numbered, one for each piece: a snapshot may be larger than a record. What an earlier, larger one
   has left behind carries another id, and goes with nothing.
4. A snapshot belongs to a log: it names the offset of the last event in it, and the hash of that event. `is_of` tells
   whether that is what the log has there; a log that was made anew has not.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from google.protobuf.message import DecodeError

from mesh.record_rules import RecordRules
from mesh.routing import InvalidRuleError, RoutingState
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.rpc import snapshots
from services.router.agents.record_rule_form import rules_from_proto, rules_to_proto

FORMAT = 1
"""Raise it when older routers would misread what newer ones write; they then ignore it."""
SLOTS = 4
PIECE_BYTES = 512 * 1024
"""Half of what a record may have by Kafka's default (`max.message.bytes`)."""
MOST_PIECES = 64
"""Of one snapshot: 32 MB. 10,000 rules take one piece."""
MOST_BYTES = 512 * 1024 * 1024
"""Of a snapshot that is unpacked."""


class SnapshotError(ValueError):
    """This snapshot can't be used, or not be written, and why."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was folded up to the event at `offset` of the log."""

    routing: RoutingState
    record_rules: RecordRules
    offset: int
    event_hash: bytes
    router: str = ""
    """Who made it."""
    time: float = field(default_factory=time.time)
    """When, in seconds since 1970."""

    @property
    def position(self) -> int:
        return self.routing.position


@dataclass(frozen=True, slots=True)
class Found:
    """A snapshot in its pieces, all of them there."""

    pieces: Sequence[snapshots.SnapshotPiece]

    @property
    def snapshot_id(self) -> str:
        return self.pieces[0].snapshot_id

    @property
    def position(self) -> int:
        return self.pieces[0].position

    @property
    def offset(self) -> int:
        return self.pieces[0].offset

    @property
    def time(self) -> float:
        return self.pieces[0].time.ToNanoseconds() / 1e9

    def is_of(self, event: bytes) -> bool:
        """Whether it was made of the log that has this event at `offset`."""
        return hash_of(event) == self.pieces[0].event_hash


def hash_of(event: bytes) -> bytes:
    return sha256(event).digest()


def records_of(snapshot: Snapshot, every: int) -> list[tuple[bytes, bytes]]:
    """Keys and values. `every`: events from one snapshot to the next. SnapshotError when it is too large."""
    message = snapshots.RouterSnapshot(
        format=FORMAT,
        router=snapshot.router,
        routing=state_to_proto(snapshot.routing),
        record_rules=rules_to_proto(snapshot.record_rules),
    )
    packed = zlib.compress(message.SerializeToString())
    data = [packed[start : start + PIECE_BYTES] for start in range(0, len(packed), PIECE_BYTES)]
    if len(data) > MOST_PIECES:
        raise SnapshotError(f"{len(packed)} bytes are more than {MOST_PIECES} records of {PIECE_BYTES} can hold")
    common = snapshots.SnapshotPiece(
        snapshot_id=str(uuid.uuid4()),
        count=len(data),
        position=snapshot.position,
        offset=snapshot.offset,
        event_hash=snapshot.event_hash,
        data_hash=sha256(packed).digest(),
    )
    common.time.FromNanoseconds(int(snapshot.time * 1e9))
    slot = snapshot.position // every % SLOTS
    return [(f"router/{slot}/{number}".encode(), _piece(common, number, each)) for number, each in enumerate(data)]


def _piece(common: snapshots.SnapshotPiece, number: int, data: bytes) -> bytes:
    piece = snapshots.SnapshotPiece(number=number, data=data)
    piece.MergeFrom(common)
    return piece.SerializeToString()


def found_in(values: Iterable[bytes | None]) -> list[Found]:
    """The complete snapshots among these records, the newest first. What is no piece of one is passed over."""
    by_id: dict[str, dict[int, snapshots.SnapshotPiece]] = {}
    for value in values:
        try:
            piece = snapshots.SnapshotPiece.FromString(value or b"")
        except DecodeError:
            continue
        by_id.setdefault(piece.snapshot_id, {})[piece.number] = piece
    found = []
    for pieces in by_id.values():
        first = next(iter(pieces.values()))
        if 0 < first.count <= MOST_PIECES and pieces.keys() == set(range(first.count)):
            ordered = [pieces[number] for number in range(first.count)]
            found.append(Found(ordered))
    return sorted(found, key=lambda each: each.position, reverse=True)


def read(found: Found) -> Snapshot:
    """The snapshot; SnapshotError when it can't be understood."""
    packed = b"".join(piece.data for piece in found.pieces)
    if sha256(packed).digest() != found.pieces[0].data_hash:
        raise SnapshotError("it is damaged: its pieces have another hash")
    try:
        unpacker = zlib.decompressobj()
        message = snapshots.RouterSnapshot.FromString(unpacker.decompress(packed, MOST_BYTES))
        if message.format != FORMAT:
            raise SnapshotError(f"it has format {message.format}, and this router knows format {FORMAT}")
        routing = state_from_proto(message.routing)
    except (zlib.error, DecodeError, InvalidRuleError) as error:
        raise SnapshotError(f"it can't be read: {error}") from None
    if routing.position != found.position:
        raise SnapshotError(f"it is of position {routing.position} and says {found.position}")
    piece = found.pieces[0]
    rules = rules_from_proto(message.record_rules)
    return Snapshot(routing, rules, piece.offset, piece.event_hash, message.router, found.time)
