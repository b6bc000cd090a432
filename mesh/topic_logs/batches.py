"""Record batches as bytes: the fields of a batch that a copy reads or writes. No I/O.

A copy writes five fields of the header: the producer's id, epoch and sequence, the bit that says "transactional", and
the checksum over these. The records inside are the matter of `records`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
"""baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp,
producerId, producerEpoch, baseSequence, number of records.
"""
HEAD_BYTES: Final = _HEAD.size
_OUTSIDE: Final = 12
"""Bytes before a batch's length counts: the base offset and the length itself."""
_SUMMED: Final = 21
"""The first byte that counts for the checksum."""
MAGIC: Final = 2
MINTED: Final = 1 << 62
"""Brokers give ids from 0 up, and gateways mint from here: an id of the mesh meets no id of a broker."""
SEQUENCES: Final = 1 << 31
FILL_AT_ONCE: Final = 100_000
"""Offsets of one filling batch: compressed, it has less than the 1 MB that brokers take by default."""
GZIP: Final = 1
"""The codec that needs no package beside aiokafka."""
UNKNOWN: Final = -1


class Attribute(IntFlag):
    """The bits of a batch's attributes that a copy reads."""

    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20


PLAIN: Final = Attribute(0)
CODEC: Final = 0x07
"""The bits of the attributes that name the codec."""


class ForeignBatchError(ValueError):
    """The bytes of a log are no batches that a copy can pass on. The message says why."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a log, with its bytes there."""

    base_offset: int
    next_offset: int
    attributes: Attribute
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    records: int
    raw: memoryview

    @property
    def is_control(self) -> bool:
        return Attribute.CONTROL in self.attributes

    @property
    def is_transactional(self) -> bool:
        return Attribute.TRANSACTIONAL in self.attributes

    @property
    def codec(self) -> int:
        """0: the records are not compressed."""
        return int(self.attributes) & CODEC

    @property
    def records_bytes(self) -> memoryview:
        """The records, compressed or not."""
        return self.raw[_HEAD.size :]

    @property
    def content(self) -> bytes:
        """All that readers see of the batch, the same on both sides of a copy that does not join it with others."""
        kept = (self.base_offset, self.next_offset, self.base_timestamp, self.max_timestamp, self.records)
        plain = self.attributes & ~Attribute.TRANSACTIONAL
        return struct.pack(">qqqqih", *kept, int(plain)) + self.records_bytes

    def check(self) -> None:
        """ForeignBatchError: the checksum says that the bytes are damaged."""
        (said,) = struct.unpack_from(">I", self.raw, _SUMMED - 4)
        if calc_crc32c(self.raw[_SUMMED:]) != said:
            raise ForeignBatchError(f"the batch at offset {self.base_offset} is damaged: its checksum is wrong")


@dataclass(frozen=True, slots=True)
class Writer:
    """The producer of a copy at one partition: the id, and what the broker has to get next."""

    producer_id: int
    epoch: int
    sequence: int

    def after(self, records: int) -> Writer:
        return Writer(self.producer_id, self.epoch, (self.sequence + records) % SEQUENCES)

    def anew(self) -> Writer:
        """The next epoch: the broker refuses whoever writes with an earlier one."""
        return Writer(self.producer_id, self.epoch + 1, 0)


def producer_of(move_id: str) -> int:
    """The producer id of a move's copy, the same in each process that goes on with the copy."""
    return MINTED | int.from_bytes(hashlib.sha256(move_id.encode()).digest()[:8], "big") % MINTED


def batches(records: bytes) -> Iterator[Batch]:
    """The whole batches of a Fetch; the last one may be cut short. ForeignBatchError: it is none of format 2."""
    at, view = 0, memoryview(records)
    while len(view) - at >= _HEAD.size:
        base, length, _, magic, _, attributes, delta, first, latest, producer_id, _, _, number = _HEAD.unpack_from(
            view, at
        )
        if magic != MAGIC:
            raise ForeignBatchError(
                f"the records at offset {base} have format {magic}: a copy passes on format 2 (Kafka 0.11 and later)"
            )
        end = at + _OUTSIDE + length
        if end > len(view):
            return
        marks = Attribute(attributes & 0xFFFF)
        yield Batch(base, base + delta + 1, marks, first, latest, producer_id, number, view[at:end])
        at = end


def written_by(writer: Writer, batch: Batch) -> bytes:
    """The batch as the copy's producer writes it."""
    if Attribute.LOG_APPEND_TIME in batch.attributes:
        raise ForeignBatchError(
            f"the batch at offset {batch.base_offset} has the broker's time (message.timestamp.type=LogAppendTime), "
            "and brokers take no such batch from a producer"
        )
    copy = bytearray(batch.raw)
    (_, length, _, magic, _, attributes, delta, first, latest, _, _, _, number) = _HEAD.unpack_from(copy)
    plain = attributes & ~int(Attribute.TRANSACTIONAL)
    head = (length, UNKNOWN, magic)
    rest = (plain, delta, first, latest, writer.producer_id, writer.epoch, writer.sequence, number)
    _HEAD.pack_into(copy, 0, 0, *head, 0, *rest)
    _HEAD.pack_into(copy, 0, 0, *head, calc_crc32c(memoryview(copy)[_SUMMED:]), *rest)
    return bytes(copy)


def new_batch(base: int, stop: int, first: int, latest: int, records: bytes, codec: int) -> Batch:
    """A batch without a producer and a checksum. `first`, `latest`: times; `records`: compressed by `codec`."""
    number = stop - base
    head = (base, _HEAD.size - _OUTSIDE + len(records), UNKNOWN, MAGIC, 0)
    raw = _HEAD.pack(*head, codec, number - 1, first, latest, UNKNOWN, UNKNOWN, UNKNOWN, number) + records
    return Batch(base, stop, Attribute(codec), first, latest, UNKNOWN, number, memoryview(raw))


def filling(writer: Writer, offsets: int, timestamp: int) -> bytes:
    """A batch of empty records, to take offsets that nobody will read."""
    builder = DefaultRecordBatchBuilder(
        MAGIC, GZIP, 0, writer.producer_id, writer.epoch, writer.sequence, FILL_AT_ONCE * 64
    )
    for number in range(offsets):
        builder.append(number, timestamp, None, None, [])
    return bytes(builder.build())
