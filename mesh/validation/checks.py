"""Checks a batch by the rules of its topic: by its header alone, and record by record where a rule asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from mesh.validation.rule import Compression, Key, Rule

V2: Final = 2
"""The magic of today's message format."""


class Fault(Enum):
    """Kinds of faults, as far as Kafka has different errors for them."""

    RECORD = "record"
    SIZE = "size"
    ACKS = "acks"
    TIMESTAMP = "timestamp"
    FORMAT = "format"
    NAME = "name"


class Batch(NamedTuple):
    """A batch as its header and its request show it."""

    compression: int
    """As in `Compression`; a number that Kafka does not know is none of them."""
    size: int
    """In bytes, with its header."""
    max_timestamp: int
    is_idempotent: bool
    acks: int
    magic: int = V2
    """The client has sent the batch in this message format."""


class Breach(NamedTuple):
    """A rule that a batch breaks, and how."""

    rule: Rule
    fault: Fault
    reason: str
    """For the client: "compression.type is none, and has to be zstd (rule 'small' of the mesh)"."""
    records: tuple[tuple[int, str], ...] = ()
    """The records that break it, by their place in the batch; empty: the whole batch does."""


class Record(NamedTuple):
    """A record as conditions see it."""

    has_key: bool
    has_value: bool
    header_names: frozenset[bytes]
    size: int
    """In bytes, not compressed."""


def breach(rule: Rule, batch: Batch, now_ms: int) -> Breach | None:
    """The first condition of the rule that the batch breaks."""
    for fault, reason in _faults(rule, batch, now_ms):
        return Breach(rule, fault, in_rule(rule, reason))
    return None


def record_fault(rule: Rule, record: Record) -> str | None:
    """The first condition of the rule, but for those about its value, that the record breaks, in words."""
    if rule.key is Key.REQUIRED and not record.has_key:
        return "the record has no key, and a key is required"
    if rule.key is Key.FORBIDDEN and record.has_key:
        return "the record has a key, and keys are forbidden"
    if rule.tombstones_forbidden and not record.has_value:
        return "the record is a tombstone, and tombstones are forbidden"
    for name in rule.required_headers:
        if name.encode() not in record.header_names:
            return f"the record lacks header {name!r}"
    if 0 < rule.max_record_bytes < record.size:
        return f"the record has {record.size} bytes, and {rule.max_record_bytes} are possible"
    return None


def in_rule(rule: Rule, reason: str) -> str:
    """The reason as a client gets it."""
    return f"{reason} (rule {rule.rule_id!r} of the mesh)"


def _faults(rule: Rule, batch: Batch, now_ms: int) -> Iterator[tuple[Fault, str]]:
    if rule.acks_all and batch.acks != -1:
        yield Fault.ACKS, f"acks is {batch.acks}, and has to be all"
    if rule.enable_idempotence and not batch.is_idempotent:
        yield Fault.RECORD, "enable.idempotence is false, and has to be true"
    if rule.message_format_v2 and batch.magic < V2:
        yield Fault.FORMAT, f"the message format is v{batch.magic}, and has to be v2, as from Kafka 0.11 on"
    if rule.compression_types and batch.compression not in rule.compression_types:
        allowed = " or ".join(each.word for each in rule.compression_types)
        yield Fault.RECORD, f"compression.type is {_word(batch.compression)}, and has to be {allowed}"
    if 0 < rule.max_message_bytes < batch.size:
        yield Fault.SIZE, f"the batch has {batch.size} bytes, and max.message.bytes is {rule.max_message_bytes}"
    after = rule.message_timestamp_after_max_ms
    if after is not None and batch.max_timestamp > now_ms + after:
        ahead = batch.max_timestamp - now_ms
        yield (
            Fault.TIMESTAMP,
            f"the time of a record is {ahead} ms ahead, and message.timestamp.after.max.ms is {after}",
        )


def _word(compression: int) -> str:
    try:
        return Compression(compression).word
    except ValueError:
        return f"unknown ({compression})"
