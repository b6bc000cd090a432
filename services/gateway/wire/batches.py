"""Record batches (magic 2) from outside: their headers, and producer ids patched in place.

Layout from the batch's first byte:

- base offset 0-7, length of the rest 8-11, leader epoch 12-15, magic 16, CRC 17-20, attributes 21-22;
- last offset delta 23-26, base time 27-34, max time 35-42;
- producer id 43-50, epoch 51-52, base sequence 53-56;
- count 57-60, then the records, which nothing here opens.

Theory of the CRC patch. The CRC-32C covers byte 21 to the end. It is linear: for two inputs of one length,
crc(a) XOR crc(b) depends on a XOR b alone. The new value is therefore the *stored* CRC XOR that difference, and is
never computed from the payload. A batch that arrived corrupt leaves corrupt, and the broker refuses it as without the
gateway. While the batch is small, the difference comes from two CRCs over the batch in hardware. Above
`LINEAR_FROM_BYTES` the difference is the CRC of the changed bytes, moved over the zeros behind them by tables (one for
each power of two).

Theory of the ids. Brokers count producer ids up from 0, so the gateway mints its own from 2^62 up. A topic that comes
back to a cluster would meet the sequences of its last visit there. From the second visit on, the id on the batches is
therefore a pure function of (id, visit), the same on every gateway. The broker then sees a new producer.
"""

from collections.abc import Iterator
from functools import cache
from struct import Struct as Packing
from typing import NamedTuple

from crc32c import crc32c

from services.gateway.wire.primitives import INT16, INT32, INT64, UINT32, Buffer, WireError, truncated

HEADER_BYTES = 61
MAGIC_AT = 16
CRC_AT = 17
CRC_FROM = 21
PRODUCER_ID_AT = 43
_LENGTH_AT = 8
_LENGTH_FROM = 12
_HEADER = Packing(">qiibIhiqqqhii")
_COUNTED = Packing(">i4xb4xH34xi")
"""Length, magic, attributes and count; the layout begins at the length."""
_ENDS = Packing(">q15xi")
"""The first offset, and the distance of the last one from it."""
_CONTROL = 0x20
_TRANSACTIONAL = 0x10
_LAST_OFFSET_DELTA_AT = 23
_ID_AND_EPOCH = Packing(">qh")
_ID_EPOCH_AND_SEQUENCE = Packing(">qhi")

MINTED = 1 << 62
"""The lowest id that the gateway mints."""
_LOW_62 = MINTED - 1

SEQUENCES = 1 << 31
"""The number of sequences of a producer's records: the sequence 0 comes after the last one."""

LINEAR_FROM_BYTES = 16 * 1024
"""From about this size the tables (2 us, whatever the size) beat two passes of the hardware CRC."""


MOST_COUNTED = 2_000
"""Most batches whose headers are read to count the records of one partition: about a millisecond."""


class BatchHeader(NamedTuple):
    """A batch's header, and where it lies: `start` in the buffer it was read from."""

    start: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def end(self) -> int:
        return self.start + _LENGTH_FROM + self.length

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & 0x07

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id >= 0


def read_batch_header(buffer: Buffer, start: int, end: int) -> BatchHeader:
    """The header of the batch at `start`, which must lie before `end` as a whole."""
    if end - start < HEADER_BYTES:
        raise truncated("batch header", start, HEADER_BYTES, end)
    header = BatchHeader(start, *_HEADER.unpack_from(buffer, start))
    if header.magic != 2:
        raise WireError("batch.magic", start + MAGIC_AT, f"{header.magic} (a batch has magic 2)")
    if not HEADER_BYTES - _LENGTH_FROM <= header.length <= end - start - _LENGTH_FROM:
        raise WireError("batch.length", start + _LENGTH_AT, f"{header.length}, {end - start - _LENGTH_FROM} bytes left")
    return header


def read_kept_header(header: bytes) -> BatchHeader | None:
    """The header of a batch of which nothing else was kept; None if it is no batch of magic 2."""
    if len(header) < HEADER_BYTES:
        return None
    found = BatchHeader(0, *_HEADER.unpack_from(header))
    return found if found.magic == 2 else None


def batches(buffer: Buffer, start: int, end: int) -> Iterator[BatchHeader]:
    """The batches of a Produce's records field, which holds whole ones alone."""
    while start < end:
        header = read_batch_header(buffer, start, end)
        yield header
        start = header.end


class Span(NamedTuple):
    """The batches of one partition in an answer or a request, by their headers."""

    records: int
    first: int
    """The first offset; -1 without a batch of magic 2."""
    end: int
    """The offset behind the last one."""
    is_whole: bool
    """False: batches follow whose headers were not read."""


def span_of(buffer: Buffer, start: int, end: int) -> Span:
    """The batches that lie here; markers of transactions have offsets, and are no records.

    A batch that is cut short, as the last batch of a Fetch may be, does not count. Nor do older formats, which do not
    show their number of records. After `MOST_COUNTED` batches the rest is taken to be like those: an answer of many
    tiny batches must not block the event loop.
    """
    records, at, last = 0, start, -1
    for _ in range(MOST_COUNTED):
        if end - at < HEADER_BYTES:
            break
        length, magic, attributes, count = _COUNTED.unpack_from(buffer, at + _LENGTH_AT)
        behind = at + _LENGTH_FROM + length
        if magic != 2 or length < HEADER_BYTES - _LENGTH_FROM or behind > end:
            break
        last, at = at, behind
        if not attributes & _CONTROL:
            records += count
    else:
        records = records * (end - start) // (at - start)
        return Span(records, *_offsets(buffer, start, last), at == end)
    return Span(records, *_offsets(buffer, start, last), True) if last >= 0 else NO_BATCHES


def _offsets(buffer: Buffer, first: int, last: int) -> tuple[int, int]:
    """The first offset of the batch at `first`, and the offset behind the batch at `last`."""
    base, delta = _ENDS.unpack_from(buffer, last)
    begin = base if first == last else INT64.unpack_from(buffer, first)[0]
    return begin, base + delta + 1


NO_BATCHES = Span(0, -1, -1, True)


def count_records(buffer: Buffer, start: int, end: int) -> int:
    """Records of the batches that lie here, as `span_of` counts them."""
    return span_of(buffer, start, end).records


def first_transactional(buffer: Buffer, start: int, end: int) -> int | None:
    """The base offset of the first batch of a transaction, markers included; None if there is none.

    After `MOST_COUNTED` batches the next one is taken to be of a transaction.
    """
    at = start
    for _ in range(MOST_COUNTED):
        if end - at < HEADER_BYTES:
            return None
        length, magic, attributes, _count = _COUNTED.unpack_from(buffer, at + _LENGTH_AT)
        if magic == 2 and attributes & _TRANSACTIONAL:
            break
        at += _LENGTH_FROM + length
        if length <= 0 or at > end:
            return None
    return int(INT64.unpack_from(buffer, at)[0]) if end - at >= INT64.size else None


def end_of_whole(buffer: Buffer, start: int, end: int, offset: int) -> int:
    """The end of the batches that lie before `offset` as a whole."""
    at = start
    while end - at >= HEADER_BYTES:
        length, magic, *_ = _COUNTED.unpack_from(buffer, at + _LENGTH_AT)
        (base,) = INT64.unpack_from(buffer, at)
        (delta,) = INT32.unpack_from(buffer, at + _LAST_OFFSET_DELTA_AT) if magic == 2 else (0,)
        if base + delta >= offset or length <= 0 or at + _LENGTH_FROM + length > end:
            break
        at += _LENGTH_FROM + length
    return at


def last_offset(buffer: Buffer, start: int, end: int) -> int:
    """The last offset of the batch at `start`; -1 if its header is not there as a whole."""
    return _offsets(buffer, start, start)[1] - 1 if end - start >= HEADER_BYTES else -1


def shift_offsets(records: bytearray, shift: int) -> None:
    """Adds to the base offset of each batch, in place: base offsets lie outside the CRC.

    Messages older than batches have an offset and a length at the same places.
    """
    at = 0
    while len(records) - at >= _LENGTH_FROM:
        (length,) = INT32.unpack_from(records, at + _LENGTH_AT)
        INT64.pack_into(records, at, INT64.unpack_from(records, at)[0] + shift)
        if length <= 0:
            return
        at += _LENGTH_FROM + length


def count_of_header(header: Buffer) -> tuple[int, int] | None:
    """Length and records of the batch that has this header, as `span_of` takes them; None where it stops."""
    length, magic, attributes, count = _COUNTED.unpack_from(header, _LENGTH_AT)
    if magic != 2 or length < HEADER_BYTES - _LENGTH_FROM:
        return None
    return _LENGTH_FROM + length, 0 if attributes & _CONTROL else count


def span_of_headers(records: int, first: bytes, last: bytes, *, is_whole: bool) -> Span:
    """The span of batches of which the first and the last header were kept; both empty without batches."""
    if not first:
        return NO_BATCHES
    (begin,), (_, end) = INT64.unpack_from(first), _offsets(last, 0, 0)
    return Span(records, begin, end, is_whole)


def comes_after(sequence: int, other: int) -> bool:
    """Whether a producer counts `sequence` after `other`: behind the highest number it begins again at 0."""
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2


def crc_is_right(buffer: Buffer, header: BatchHeader) -> bool:
    return crc32c(memoryview(buffer)[header.start + CRC_FROM : header.end]) == header.crc


# --- producer ids ------------------------------------------------------------------------------------------------


def mint_producer_id(random_bits: int) -> int:
    """A producer id for a new producer, from 62 random bits: chance alone keeps two gateways' ids apart."""
    return MINTED | random_bits & _LOW_62


def visit_producer_id(producer_id: int, visit: int) -> int:
    """The id under which a producer's batches reach a cluster on the topic's `visit`-th stay there.

    Visit 1 is the id itself. Later visits land in the minted range, different for each visit and each id. No id (-1)
    stays no id.
    """
    if visit <= 1 or producer_id < 0:
        return producer_id
    return MINTED | (producer_id ^ _mixed(visit)) & _LOW_62


def _mixed(value: int) -> int:
    """splitmix64's finaliser: neighbours in, far apart out."""
    mask = 0xFFFF_FFFF_FFFF_FFFF
    value = value * 0x9E37_79B9_7F4A_7C15 & mask
    value = (value ^ value >> 30) * 0xBF58_476D_1CE4_E5B9 & mask
    value = (value ^ value >> 27) * 0x94D0_49BB_1331_11EB & mask
    return value ^ value >> 31


def patch_producer_id(
    buffer: bytearray | memoryview, start: int, producer_id: int, *, linear_from: int = LINEAR_FROM_BYTES
) -> None:
    """Give the batch at `start` another producer id, in place, CRC included."""
    _patch(buffer, start, INT64.pack(producer_id), linear_from)


def patch_producer(
    buffer: bytearray | memoryview, start: int, producer_id: int, epoch: int, *, linear_from: int = LINEAR_FROM_BYTES
) -> None:
    """As `patch_producer_id`, with another epoch too: it stands behind the id."""
    _patch(buffer, start, _ID_AND_EPOCH.pack(producer_id, epoch), linear_from)


def _patch(buffer: bytearray | memoryview, start: int, new: bytes, linear_from: int) -> None:
    """Write `new` where the producer id stands, and beyond."""
    if len(buffer) - start < HEADER_BYTES:
        raise truncated("batch header", start, HEADER_BYTES, len(buffer))
    (length,) = INT32.unpack_from(buffer, start + _LENGTH_AT)
    end = start + _LENGTH_FROM + length
    if buffer[start + MAGIC_AT] != 2 or not start + HEADER_BYTES <= end <= len(buffer):
        read_batch_header(buffer, start, len(buffer))  # names what is wrong
    at, size = start + PRODUCER_ID_AT, len(new)
    (stored,) = UINT32.unpack_from(buffer, start + CRC_AT)
    if length < linear_from:
        with memoryview(buffer) as view, view[start + CRC_FROM : end] as covered:
            difference = crc32c(covered)
            buffer[at : at + size] = new
            difference ^= crc32c(covered)
    else:
        changed = int.from_bytes(buffer[at : at + size], "big") ^ int.from_bytes(new, "big")
        buffer[at : at + size] = new
        difference = _over_zeros(crc32c(changed.to_bytes(size, "big")) ^ crc32c(bytes(size)), end - at - size)
    UINT32.pack_into(buffer, start + CRC_AT, stored ^ difference)


def make_ordinary(records: bytearray) -> None:
    """Give each batch no producer and no transaction, in place, CRC included; the batches are whole."""
    for batch in batches(records, 0, len(records)):
        at = batch.start
        INT16.pack_into(records, at + CRC_FROM, batch.attributes & ~_TRANSACTIONAL)
        _ID_EPOCH_AND_SEQUENCE.pack_into(records, at + PRODUCER_ID_AT, -1, -1, -1)
        with memoryview(records) as view, view[at + CRC_FROM : batch.end] as covered:
            UINT32.pack_into(records, at + CRC_AT, crc32c(covered))


_POLYNOMIAL = 0x82F6_3B78  # CRC-32C, bits reflected
_Table = tuple[tuple[int, ...], ...]


def _over_zeros(crc: int, zeros: int) -> int:
    """The linear CRC of something, after that many zero bytes more."""
    power = 0
    while zeros:
        if zeros & 1:
            low, second, third, high = _zeros_table(power)
            crc = low[crc & 0xFF] ^ second[crc >> 8 & 0xFF] ^ third[crc >> 16 & 0xFF] ^ high[crc >> 24]
        zeros >>= 1
        power += 1
    return crc


@cache
def _zeros_table(power: int) -> _Table:
    """The effect of 2^power zero bytes on each byte of a CRC. Made at first need: 8 KB each."""
    images = [_after_zeros(1 << bit, power) for bit in range(32)]
    tables = []
    for byte in range(4):
        table = [0] * 256
        for value in range(1, 256):
            lowest = value & -value
            table[value] = table[value ^ lowest] ^ images[byte * 8 + lowest.bit_length() - 1]
        tables.append(tuple(table))
    return tuple(tables)


def _after_zeros(crc: int, power: int) -> int:
    if power:  # twice half the zeros
        low, second, third, high = _zeros_table(power - 1)
        for _ in range(2):
            crc = low[crc & 0xFF] ^ second[crc >> 8 & 0xFF] ^ third[crc >> 16 & 0xFF] ^ high[crc >> 24]
        return crc
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc
