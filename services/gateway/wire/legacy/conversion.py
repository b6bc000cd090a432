"""Whole requests and answers between old clients and the brokers of today. Pure functions of bytes, made to run in
another process: their arguments and results are plain data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import error as struct_error

from mesh.compression import Allowance, Codec
from services.gateway.wire.batches import MAGIC_AT, read_batch_header
from services.gateway.wire.frames import DEFAULT_MAX_FRAME_BYTES
from services.gateway.wire.legacy.message_sets import LOG_APPEND_TIME, read_message_set, write_message, write_wrapper
from services.gateway.wire.legacy.record import Group
from services.gateway.wire.legacy.record_batches import read_batch, write_batch
from services.gateway.wire.primitives import INT32, WireError

MOST_DECOMPRESSED = DEFAULT_MAX_FRAME_BYTES
"""Most bytes of the decompressed records of one request, or of one batch of an answer: as many as the longest request
could carry uncompressed."""
MOST_RECORDS = 1_000_000
"""Most records in one request: some five seconds' work. A client of that time sends at most a thousandth of it."""
_LENGTH_AT, _LENGTH_FROM = 8, 12


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Bytes that are no records."""

    reason: str


# --- up: Produce -------------------------------------------------------------------------------------------------


def batches_of(message_sets: tuple[bytes, ...]) -> tuple[bytes | Corrupt | None, ...]:
    """Each message set of one request as one batch, in the codec of its first compressed message; None if empty."""
    allowance, records_left = Allowance(MOST_DECOMPRESSED), MOST_RECORDS
    found: list[bytes | Corrupt | None] = []
    for each in message_sets:
        try:
            batch = write_batch(read_message_set(each, 0, len(each), allowance), records_left)
        except WireError as error:
            found.append(Corrupt(str(error)))
            continue
        found.append(batch)
        if batch is not None:
            records_left -= read_batch_header(batch, 0, len(batch)).record_count
    return tuple(found)


# --- down: Fetch -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stored:
    """The records of a partition in a broker's answer."""

    records: bytes
    """Batches and, from brokers of 2.x, message sets; the last one may be cut short."""
    from_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Readable:
    """The same records for an old client."""

    messages: bytes
    next_offset: int
    """The offset behind all records that were read. Without a message, a client needs nothing before this offset."""


def message_sets_of(partitions: tuple[Stored, ...], magic: int, max_bytes: int) -> tuple[Readable | Corrupt, ...]:
    """Records of partitions as message sets of `magic`, whole messages alone. Each partition keeps to its bytes and all
    together to `max_bytes`. But the first message is given however long it is: a client that got none would repeat its
    request for ever."""
    found: list[Readable | Corrupt] = []
    for stored in partitions:
        if max_bytes <= 0:
            found.append(Readable(b"", stored.from_offset))
            continue
        try:
            readable = _message_set_of(stored, magic, min(stored.max_bytes, max_bytes))
        except (WireError, struct_error) as error:  # an offset or a time that 64 bits can't hold
            found.append(Corrupt(str(error)))
            continue
        max_bytes -= len(readable.messages)
        found.append(readable)
    return tuple(found)


def _message_set_of(stored: Stored, magic: int, max_bytes: int) -> Readable:
    out = bytearray()
    next_offset = stored.from_offset
    for group in _groups(stored.records):
        wanted = (record for record in group.records if record.offset >= stored.from_offset)
        before = len(out)
        if group.codec:
            write_wrapper(out, magic, _known_codec(group), wanted)
        else:
            attributes = LOG_APPEND_TIME if group.log_append_time and magic else 0
            for record in wanted:
                mark = len(out)
                write_message(out, magic, record, attributes)
                if len(out) > max_bytes and mark:
                    del out[mark:]
                    return Readable(bytes(out), next_offset)
                next_offset = record.offset + 1
        if len(out) > max_bytes and before:
            del out[before:]
            break
        next_offset = max(next_offset, group.next_offset)
        if len(out) >= max_bytes:
            break
    return Readable(bytes(out), next_offset)


def _known_codec(group: Group) -> Group:
    return group._replace(codec=Codec.GZIP) if group.codec is Codec.ZSTD else group


def _groups(records: bytes) -> Iterator[Group]:
    """The records of a broker's answer in any format. Clients of these versions get no markers of transactions."""
    at, end = 0, len(records)
    while end - at > MAGIC_AT:
        (length,) = INT32.unpack_from(records, at + _LENGTH_AT)
        stop = at + _LENGTH_FROM + length
        if stop > end:
            return
        if stop <= at + MAGIC_AT:
            raise WireError("records.length", at + _LENGTH_AT, f"{length} is too short for any format")
        if records[at + MAGIC_AT] < 2:
            yield from read_message_set(records, at, stop, Allowance(MOST_DECOMPRESSED))
        else:
            header = read_batch_header(records, at, stop)
            group = read_batch(records, header, Allowance(MOST_DECOMPRESSED))
            yield group._replace(records=iter(())) if header.is_control else group
        at = stop
