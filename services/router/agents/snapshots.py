"""Snapshots: the folded state of a router as records of a compacted topic, and back. No I/O.

Theory of operation
1. A snapshot is a shortcut, never the only copy: if a snapshot is absent, damaged, incomplete, of another format or of
   another log, the router takes an older snapshot. If there is none, the router reads the log from its beginning.
2. Compaction keeps the last record of each key. A snapshot's keys name one of `SLOTS` slots, which follows from the
   snapshot's position. So an older snapshot that a slow router writes late does not replace a newer snapshot. A router
   that dies while it writes damages one slot and not the others. The highest position counts, not the last record.
3. A slot's keys are numbered, one for each piece: a snapshot may be larger than a record. Pieces that remain of an
   earlier, larger snapshot have another id, and are ignored.
4. A snapshot belongs to a log: it names the offset of the last event in it, and the hash of that event. `is_of`
   compares that hash with the event in the log at this offset; a new log has another event there.
5. A router with a certificate signs its snapshots, and reads those alone that a router has signed.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from google.protobuf.message import DecodeError

from mesh.event_log import Chain, Signatures, Signs, UnsignedError
from mesh.record_rules import RecordRules
from mesh.routing import InvalidRuleError, RoutingState
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.rpc import snapshots
from services.router.agents.record_rule_form import rules_from_proto, rules_to_proto

FORMAT = 4
"""Raise the number when older routers would misread snapshots of newer routers; older routers then ignore those."""
WORD: Final = "snapshot"
"""Signatures of snapshots cover this word."""
SLOTS = 4
PIECE_BYTES = 512 * 1024
"""Half of what a record may have by Kafka's default (`max.message.bytes`)."""
MOST_PIECES = 64
"""Pieces of one snapshot: 32 MB. 10,000 rules take one piece."""
MOST_BYTES = 512 * 1024 * 1024
"""Bytes of an unpacked snapshot."""


class SnapshotError(ValueError):
    """This snapshot can't be used, or not be written, and why."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state folded up to the event at `offset` of the log."""

    routing: RoutingState
    record_rules: RecordRules
    offset: int
    event_hash: bytes
    router: str = ""
    """The router that made the snapshot."""
    time: float = field(default_factory=time.time)
    """When, in seconds since 1970."""
    chain_hash: bytes = b""
    """Hash of the log's chain after the event; empty in snapshots of older releases."""
    shown: tuple[tuple[bytes, ...], ...] = ()
    """The certificates of control that the log has shown, in DER."""

    @property
    def chain(self) -> Chain:
        return Chain(self.position, self.chain_hash)

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


def records_of(snapshot: Snapshot, every: int, keys: Signs | None = None) -> list[tuple[bytes, bytes]]:
    """Keys and values. `every`: events from one snapshot to the next. SnapshotError when it is too large."""
    message = snapshots.RouterSnapshot(
        format=FORMAT,
        router=snapshot.router,
        routing=state_to_proto(snapshot.routing),
        record_rules=rules_to_proto(snapshot.record_rules),
        chain_hash=snapshot.chain_hash,
        shown_certificates=[snapshots.ShownCertificates(certificates=each) for each in snapshot.shown],
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
    if keys is not None:
        common.signature.CopyFrom(keys.signature(WORD, common.SerializeToString(deterministic=True), shows=True))
    slot = snapshot.position // every % SLOTS
    return [(f"router/{slot}/{number}".encode(), _piece(common, number, each)) for number, each in enumerate(data)]


def _piece(common: snapshots.SnapshotPiece, number: int, data: bytes) -> bytes:
    piece = snapshots.SnapshotPiece(number=number, data=data)
    piece.MergeFrom(common)
    return piece.SerializeToString()


def found_in(values: Iterable[bytes | None]) -> list[Found]:
    """The complete snapshots among these records, the newest first. Records that are no piece of a snapshot are
    skipped.
    """
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


def read(found: Found, signatures: Signatures | None = None) -> Snapshot:
    """The snapshot; SnapshotError when it can't be understood, or is signed by nobody whose `signatures` count."""
    if signatures is not None:
        _check_signature(found.pieces[0], signatures)
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
    return Snapshot(
        routing,
        rules,
        piece.offset,
        piece.event_hash,
        message.router,
        found.time,
        message.chain_hash,
        tuple(tuple(each.certificates) for each in message.shown_certificates),
    )


def _check_signature(piece: snapshots.SnapshotPiece, signatures: Signatures) -> None:
    common = snapshots.SnapshotPiece()
    common.CopyFrom(piece)
    for own in ("number", "data", "signature"):
        common.ClearField(own)
    try:
        signatures.check(WORD, common.SerializeToString(deterministic=True), piece.signature)
    except UnsignedError as error:
        raise SnapshotError(f"no router that is trusted here has signed it: {error}") from None
