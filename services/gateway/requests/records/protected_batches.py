"""Protects and reveals batches: the work of another process, a few us a record. Plain data in and out, no I/O.

Records that can't be read, decrypted or protected never pass. A batch is stored as the rules say or not at all, and a
client gets the answer that the rules say or an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mesh.compression import Allowance
from mesh.protection.fields import Content, Headers, MissingError, SchemaAwayError, Schemas
from mesh.protection.keys import DataKey, NoKey, Wrapped
from mesh.protection.records import Protecting, RefusedError, Revealing, WithheldError
from mesh.protection.rule import Rule
from services.gateway.wire.batches import BatchHeader, read_batch_header
from services.gateway.wire.primitives import WireError
from services.gateway.wire.record_bodies import read_body
from services.gateway.wire.record_editing import edited, parts

MOST_DECOMPRESSED = 100 * 1024 * 1024
"""Bytes that may come out of the batches of one request, or one answer."""
ENOUGH_REVEALED = 16 * 1024 * 1024
"""Bytes of records after which an answer takes in no further batch: tiny records take some 10 us each. A client asks
for the rest at once. The first batch always goes."""
MOST_TOLD = 100
"""Records of one batch that an answer names."""
MOST_DATA_KEYS = 1000
"""Data keys that one answer may need: many gateways write for a long time with fewer."""
_MAGIC_AT, _LENGTH_AT, _LENGTH_FROM = 16, 8, 12


@dataclass(frozen=True, slots=True)
class Written:
    """The batches of one partition, as a producer sent them."""

    topic: str
    rules: tuple[Rule, ...]
    """Those that encrypt."""
    records: bytes


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Batches that can't be stored as the rules say."""

    rule_id: str
    reason: str
    records: tuple[tuple[int, str], ...] = ()
    """The records by their place in the batch, with their faults; empty: the whole batch."""
    for_now: bool = False
    """Whether they can be protected at another time."""


def protected_batches(
    written: list[Written], keys: Mapping[str, DataKey], schemas: Schemas
) -> list[bytes | Unprotected] | frozenset[bytes]:
    """The batches of each partition, protected; or the prefixes of the schemas that are missing, and nothing yet."""
    allowance = Allowance(MOST_DECOMPRESSED)
    missing: set[bytes] = set()
    found = [_protected(each, keys, schemas, allowance, missing) for each in written]
    return frozenset(missing) or found


def _protected(
    written: Written, keys: Mapping[str, DataKey], schemas: Schemas, allowance: Allowance, missing: set[bytes]
) -> bytes | Unprotected:
    out: list[bytes] = []
    at, records = 0, written.records
    try:
        while at < len(records):
            header = read_batch_header(records, at, len(records))
            if header.is_control:
                raise WireError("batch.attributes", at, "a client can't write markers of transactions")
            body = read_body(records, header, allowance)
            faults: list[tuple[int, str, str]] = []
            protecting = Protecting(written.topic, written.rules, keys, schemas)
            at = header.end
            if not missing:
                try:
                    out.append(edited(records, header, body, _Numbered(protecting, faults).edit))
                except MissingError as error:
                    missing |= {each for each in error.names if isinstance(each, bytes)}
            if missing:  # all that are missing are asked for at once
                missing.update(*(protecting.fields.missing(each) for each in _contents(body, header)))
                continue
            if faults:
                index, rule_id, reason = faults[0]
                told = tuple((place, f"{why} (rule {rule!r} of the mesh)") for place, rule, why in faults)
                return Unprotected(rule_id, f"record {index}: {reason} (rule {rule_id!r} of the mesh)", told)
    except SchemaAwayError as error:
        return Unprotected(written.rules[0].rule_id, str(error), for_now=True)
    except WireError as error:
        rule_id = written.rules[0].rule_id
        return Unprotected(rule_id, f"the records can't be read: {error} (rule {rule_id!r} of the mesh)")
    return b"".join(out)


@dataclass(slots=True)
class _Numbered:
    """Notes the records that can't be protected, by their place."""

    protecting: Protecting
    faults: list[tuple[int, str, str]]
    index: int = -1

    def edit(self, value: bytes | None, headers: Headers) -> Content:
        self.index += 1
        try:
            return self.protecting.protected(Content(value, headers))
        except RefusedError as error:
            if len(self.faults) < MOST_TOLD:
                self.faults.append((self.index, error.rule_id, error.reason))
            return Content(None, ())  # the batch is not sent


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
    stored: list[Stored], principals: tuple[str, ...], secrets: Mapping[Wrapped, bytes | NoKey], schemas: Schemas
) -> list[Revealed] | frozenset[Wrapped | bytes]:
    """The records of each partition; or the data keys and schemas that are missing, and nothing yet."""
    allowance = Allowance(MOST_DECOMPRESSED)
    work = _Work(principals, secrets, schemas, allowance)
    found = [work.revealed(each) for each in stored]
    return frozenset(work.missing) or found


@dataclass(slots=True)
class _Work:
    principals: tuple[str, ...]
    secrets: Mapping[Wrapped, bytes | NoKey]
    schemas: Schemas
    allowance: Allowance
    missing: set[Wrapped | bytes] = field(default_factory=set)
    read: int = 0
    """Bytes of records that have been read."""

    def revealed(self, stored: Stored) -> Revealed:
        revealing = Revealing(stored.topic, stored.rules, self.principals, self.secrets, self.schemas)
        out: list[bytes] = []
        at, records = 0, stored.records
        try:
            while self.read < ENOUGH_REVEALED and (header := _next_batch(records, at)) is not None:
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
        if not self.missing:
            try:
                return edited(records, header, body, lambda value, headers: revealing.revealed(Content(value, headers)))
            except MissingError as error:
                self.missing |= error.names
        if len(self.missing) < MOST_DATA_KEYS:  # all that is missing is asked for at once
            self.missing.update(*(revealing.needed(each) for each in _contents(body, header)))
        return b""


def _contents(body: bytes, header: BatchHeader) -> Iterator[Content]:
    return (Content(part.value, part.headers) for part in parts(body, header.record_count))


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
