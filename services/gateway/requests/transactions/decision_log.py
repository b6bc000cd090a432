"""The records of partition 0 of `mesh.transactions`, and their content: no I/O, no plans.

Theory of operation
1. A *decision* says that a transaction over several clusters is committed, and names its parts. The decision is written
   in the transaction at home itself: the commit marker of home's coordinator makes the decision valid, the abort marker
   makes it void. So a producer that was fenced at home decides nothing, and no gateway sees a decision that is not
   final.
2. A *note* says that a producer could not be fenced on a cluster when its successor began. It is valid at once.
3. Both end with a record of the same key and no value, once they are carried out.
4. The log is read up to its high watermark, markers included, and not as `read_committed` shows it: an open transaction
   of one id must not hide what was decided about others.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.gateway.requests.transactions.state import Identity
from services.gateway.wire.batches import BatchHeader, read_batch_header
from services.gateway.wire.compression import Allowance
from services.gateway.wire.legacy.record_batches import read_batch
from services.gateway.wire.primitives import INT16, Buffer, WireError

DECIDED: Final = "decided"
UNFENCED: Final = "unfenced"
MOST_DECOMPRESSED: Final = 16 << 20
_TRANSACTIONAL: Final = 0x10
_COMMIT: Final = 1
_MARKER_TYPE_AT: Final = 2


@dataclass(frozen=True, slots=True)
class Part:
    """One cluster's share of a transaction: the identity that writes there, and the start (ms of the cluster's clock).

    An identity of the first protocol goes through many transactions; the start distinguishes them.
    """

    identity: Identity
    started_ms: int


@dataclass(frozen=True, slots=True)
class Decision:
    transactional_id: str
    at_home: Identity
    version: int
    """The version of EndTxn that the client sent: the two protocols end transactions differently."""
    parts: Mapping[str, Part]

    @property
    def key(self) -> bytes:
        return _packed([DECIDED, self.transactional_id, *self.at_home])

    @property
    def value(self) -> bytes:
        parts = {cluster: [*part.identity, part.started_ms] for cluster, part in self.parts.items()}
        return _packed({"version": self.version, "parts": parts})


def note_key(transactional_id: str, cluster: str) -> bytes:
    return _packed([UNFENCED, transactional_id, cluster])


NOTE_VALUE: Final = b"{}"


@dataclass(slots=True)
class TransactionLog:
    """The content of one home's log, as far as one gateway has read it."""

    next_offset: int = 0
    _decisions: dict[str, dict[bytes, Decision]] = field(default_factory=dict)
    """By transactional id and key."""
    _notes: set[tuple[str, str]] = field(default_factory=set)
    """Transactional id and cluster."""
    _undecided: dict[int, dict[bytes, Decision]] = field(default_factory=dict)
    """Decisions that are written, and neither committed nor aborted, by producer id and key."""

    def take(self, records: Buffer) -> None:
        """The batches of a Fetch; the last one may be cut short. Raises `WireError` for bytes that are no batches."""
        start, end = 0, len(records)
        while True:
            try:
                header = read_batch_header(records, start, end)
            except WireError:
                if end - start >= _WHOLE_HEADER and _length(records, start) <= end - start:
                    raise
                return
            if header.base_offset + header.last_offset_delta >= self.next_offset:
                self._take_batch(records, header)
                self.next_offset = header.base_offset + header.last_offset_delta + 1
            start = header.end

    def _take_batch(self, records: Buffer, header: BatchHeader) -> None:
        pairs = read_batch(records, header, Allowance(MOST_DECOMPRESSED)).records
        for record in pairs:
            key = bytes(record.key or b"")
            value = None if record.value is None else bytes(record.value)
            if header.is_control:
                self._mark(header.producer_id, committed=_marker_type(key) == _COMMIT)
            else:
                self._enter(key, value, header.producer_id if header.attributes & _TRANSACTIONAL else None)

    def _mark(self, producer_id: int, *, committed: bool) -> None:
        for key, decision in self._undecided.pop(producer_id, {}).items():
            if committed:
                self._decisions.setdefault(decision.transactional_id, {})[key] = decision

    def _enter(self, key: bytes, value: bytes | None, undecided_of: int | None) -> None:
        match _read(key):
            case [str(kind), str(transactional_id), str(cluster)] if kind == UNFENCED:
                (self._notes.discard if value is None else self._notes.add)((transactional_id, cluster))
            case [str(kind), str(transactional_id), int(producer_id), int(epoch)] if kind == DECIDED:
                if value is None:
                    self._forget(transactional_id, key, producer_id)
                    return
                decision = _decision(transactional_id, Identity(producer_id, epoch), value)
                if decision is not None and undecided_of is not None:
                    self._undecided.setdefault(undecided_of, {})[key] = decision

    def _forget(self, transactional_id: str, key: bytes, producer_id: int) -> None:
        """Drops a decision, also one whose marker comes after the record that ends the decision."""
        self._undecided.get(producer_id, {}).pop(key, None)
        known = self._decisions.get(transactional_id)
        if known is not None and known.pop(key, None) is not None and not known:
            del self._decisions[transactional_id]

    def decisions_on(self, transactional_id: str) -> tuple[Decision, ...]:
        """The decisions about the id that were not carried out, as far as the log was read."""
        return tuple(self._decisions.get(transactional_id, {}).values())

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(decision for by_key in self._decisions.values() for decision in by_key.values())

    def is_unfenced(self, transactional_id: str, cluster: str) -> bool:
        return (transactional_id, cluster) in self._notes


_LENGTH_FROM: Final = 12
_WHOLE_HEADER: Final = 61


def _length(records: Buffer, start: int) -> int:
    return _LENGTH_FROM + int.from_bytes(memoryview(records)[start + 8 : start + _LENGTH_FROM], "big", signed=True)


def _marker_type(key: bytes) -> int:
    return int(INT16.unpack_from(key, _MARKER_TYPE_AT)[0]) if len(key) >= _MARKER_TYPE_AT + INT16.size else -1


def _packed(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _read(key: bytes) -> object:
    try:
        return json.loads(key)
    except ValueError:
        return None


def _decision(transactional_id: str, at_home: Identity, value: bytes) -> Decision | None:
    """None for a value that no gateway wrote."""
    match _read(value):
        case {"version": int(version), "parts": dict(parts)}:
            return Decision(transactional_id, at_home, version, dict(_parts(parts)))
    return None


def _parts(parts: Mapping[str, object]) -> Iterator[tuple[str, Part]]:
    for cluster, part in parts.items():
        match part:
            case [int(producer_id), int(epoch), int(started_ms)]:
                yield cluster, Part(Identity(producer_id, epoch), started_ms)
