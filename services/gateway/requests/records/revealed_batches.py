"""Reveals batches to a client: the work of another process, a few us a record. Plain data in and out, no I/O.

Records that can't be read or decrypted never pass: a client gets the answer that the rules say or an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.compression import Allowance
from mesh.protection.fields import Content, MissingError, Schemas
from mesh.protection.keys import NoKey, Wrapped
from mesh.protection.records import Revealing, WithheldError
from mesh.protection.rule import Rule
from services.gateway.wire.batches import BatchHeader, read_batch_header
from services.gateway.wire.primitives import WireError
from services.gateway.wire.record_bodies import read_body
from services.gateway.wire.record_editing import Part, edited

MOST_DECOMPRESSED = 100 * 1024 * 1024
"""Bytes that may come out of the batches of one answer."""
ENOUGH_REVEALED = 16 * 1024 * 1024
"""Bytes of records after which an answer takes in no further batch: tiny records take some 10 us each. A client asks
for the rest at once. The first batch always goes."""
ENOUGH_SHARED = 64 * 1024 * 1024
"""As `ENOUGH_REVEALED`, for a member of a share group: what it does not get has to be released."""
MOST_DATA_KEYS = 1000
"""Data keys that one answer may need: many gateways write for a long time with fewer."""
_MAGIC_AT, _LENGTH_AT, _LENGTH_FROM = 16, 8, 12


@dataclass(frozen=True, slots=True)
class Stored:
    """The records of one partition, as a cluster has them."""

    topic: str
    rules: tuple[Rule, ...]
    records: bytes


@dataclass(frozen=True, slots=True)
class Revealed:
    """The records of one partition, as a client gets them: up to the first batch that it can't have."""

    records: bytes
    rule_id: str = ""
    withheld: str = ""
    """Why the client does not get the next batch; empty if it gets all."""
    for_now: bool = False
    """Whether the client gets it at another time."""
    is_damaged: bool = False
    """Whether its bytes are no records."""


def revealed_batches(
    stored: list[Stored],
    principals: tuple[str, ...],
    secrets: Mapping[Wrapped, bytes | NoKey],
    schemas: Schemas,
    enough: int | None = None,
) -> list[Revealed] | frozenset[Wrapped | bytes]:
    """The records of each partition; or the data keys and schemas that are missing, and nothing yet."""
    allowance = Allowance(MOST_DECOMPRESSED)
    work = _Work(principals, secrets, schemas, allowance, ENOUGH_REVEALED if enough is None else enough)
    found = [work.revealed(each) for each in stored]
    return frozenset(work.missing) or found


@dataclass(slots=True)
class _Work:
    principals: tuple[str, ...]
    secrets: Mapping[Wrapped, bytes | NoKey]
    schemas: Schemas
    allowance: Allowance
    enough: int
    missing: set[Wrapped | bytes] = field(default_factory=set)
    read: int = 0
    """Bytes of records that have been read."""

    def revealed(self, stored: Stored) -> Revealed:
        revealing = Revealing(stored.topic, stored.rules, self.principals, self.secrets, self.schemas)
        out: list[bytes] = []
        at, records = 0, stored.records
        try:
            while self.read < self.enough and (header := _next_batch(records, at)) is not None:
                out.append(self._batch(records, header, revealing))
                at = header.end
        except WithheldError as error:
            return Revealed(b"".join(out), error.rule_id, error.reason, error.for_now)
        except WireError as error:
            reason = f"the batch behind byte {at} can't be read: {error}"
            return Revealed(b"".join(out), stored.rules[0].rule_id, reason, is_damaged=True)
        return Revealed(b"".join(out))

    def _batch(self, records: bytes, header: BatchHeader, revealing: Revealing) -> bytes:
        if header.is_control:
            return records[header.start : header.end]
        body = read_body(records, header, self.allowance)
        self.read += len(body)
        return edited(records, header, body, lambda part: self._revealed(part, revealing)) or b""

    def _revealed(self, part: Part, revealing: Revealing) -> Content | None:
        content = Content(part.value, part.headers)
        if not self.missing:
            try:
                return revealing.revealed(content)
            except MissingError as error:
                self.missing |= error.names
        if len(self.missing) < MOST_DATA_KEYS:  # all that is missing is asked for at once
            self.missing |= revealing.needed(content)
        return None


def _next_batch(records: bytes, at: int) -> BatchHeader | None:
    """None at the end, and where the last batch is cut short, as the last one of an answer may be.

    A part of a batch can't be decrypted, and could show what is to be masked; the client asks for the batch again.
    """
    left = len(records) - at
    if left <= _MAGIC_AT:
        return None
    length = int.from_bytes(records[at + _LENGTH_AT : at + _LENGTH_FROM], "big", signed=True)
    if length > left - _LENGTH_FROM and records[at + _MAGIC_AT] == 2:
        return None
    return read_batch_header(records, at, len(records))
