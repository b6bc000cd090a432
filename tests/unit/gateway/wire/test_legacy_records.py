"""Records of old clients become batches and come back: checked with bytes of real clients, and by another reader."""

import struct
from typing import Any

import cramjam
import pytest
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.compression import Allowance, Codec, compress, decompress, lz4_header_checksum
from services.gateway.wire.batches import crc_is_right, read_batch_header
from services.gateway.wire.legacy import conversion
from services.gateway.wire.legacy.conversion import Corrupt, Readable, Stored, batches_of, message_sets_of
from services.gateway.wire.legacy.message_sets import read_message_set, write_message, write_wrapper
from services.gateway.wire.legacy.record import Group, Record
from services.gateway.wire.legacy.record_batches import read_batch
from services.gateway.wire.primitives import WireError
from tests.fixtures.sweeps import REPEAT
from tests.unit.gateway.wire.old_client_bytes import MAGIC_0, MAGIC_1, MAGIC_1_LOG_APPEND_TIME

PLENTY = 1 << 20
LZ4_MAGIC = b"\x04\x22\x4d\x18"
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
T = 1_600_000_000_000
Row = tuple[int, int, bytes | None, bytes | None]

each_codec = pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)
each_magic = pytest.mark.parametrize("magic", [0, 1])


def records(*values: bytes | None, first: int = 0, time: int = T) -> list[Record]:
    return [Record(first + i, time + i, b"k%d" % i, value) for i, value in enumerate(values)]


def message_set(magic: int, codec: Codec, rows: list[Record], *, log_append_time: bool = False) -> bytes:
    out = bytearray()
    if codec:
        write_wrapper(out, magic, Group(codec, log_append_time, iter(()), 0), rows)
    else:
        for row in rows:
            write_message(out, magic, row)
    return bytes(out)


def batch_of(message_set: bytes) -> bytes:
    (batch,) = batches_of((message_set,))
    assert isinstance(batch, bytes), batch
    return batch


def stored_batch(message_set: bytes, first_offset: int) -> bytes:
    """As a broker keeps it: with its place in the log."""
    return struct.pack(">q", first_offset) + batch_of(message_set)[8:]


def rows_of_batch(batch: bytes) -> list[Row]:
    header = read_batch_header(batch, 0, len(batch))
    assert crc_is_right(batch, header) and header.end == len(batch)
    return rows(read_batch(batch, header, Allowance(PLENTY)))


def rows(group: Group) -> list[Row]:
    return [(r.offset, r.timestamp, plain(r.key), plain(r.value)) for r in group.records]


def plain(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def rows_of_set(message_set: bytes) -> list[Row]:
    return [
        row for group in read_message_set(message_set, 0, len(message_set), Allowance(PLENTY)) for row in rows(group)
    ]


def down(records: bytes, magic: int, from_offset: int = 0, max_bytes: int = PLENTY) -> Readable:
    (found,) = message_sets_of((Stored(records, from_offset, max_bytes),), magic, PLENTY)
    assert isinstance(found, Readable), found
    return found


# --- up ----------------------------------------------------------------------------------------------------------


@each_codec
def test_messages_of_0_8_become_one_batch_without_times(codec: Codec) -> None:
    batch = batch_of(MAGIC_0[codec])
    header = read_batch_header(batch, 0, len(batch))
    assert (header.compression, header.record_count, header.last_offset_delta) == (codec, 3, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)
    assert rows_of_batch(batch) == [(0, -1, b"k", b"apple"), (1, -1, None, b"pear"), (2, -1, b"gone", None)]


@each_codec
def test_messages_of_0_10_keep_their_times(codec: Codec) -> None:
    batch = batch_of(MAGIC_1[codec])
    assert rows_of_batch(batch) == [(0, T, b"k", b"apple"), (1, T + 2, None, b"pear"), (2, T + 1, b"gone", None)]
    assert read_batch_header(batch, 0, len(batch)).max_timestamp == T + 2


@each_codec
def test_the_time_of_a_wrapper_with_log_append_time_is_that_of_all_its_messages(codec: Codec) -> None:
    batch = batch_of(MAGIC_1_LOG_APPEND_TIME[codec])
    assert [time for _, time, _, _ in rows_of_batch(batch)] == [T + 9999] * 3


@each_magic
@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)
def test_another_reader_finds_the_same_in_the_batch(magic: int, codec: Codec) -> None:
    found = MemoryRecords(batch_of(message_set(magic, codec, records(b"a", b"b" * 70_000, None)))).next_batch()
    assert found is not None and found.validate_crc()
    assert [(r.key, r.value) for r in found] == [(b"k0", b"a"), (b"k1", b"b" * 70_000), (b"k2", None)]


def test_several_wrappers_and_plain_messages_become_one_batch() -> None:
    mixed = (
        message_set(1, Codec.NONE, records(b"1"))
        + message_set(1, Codec.SNAPPY, records(b"2", b"3"))
        + message_set(0, Codec.GZIP, records(b"4"))
    )
    batch = batch_of(mixed)
    assert [value for _, _, _, value in rows_of_batch(batch)] == [b"1", b"2", b"3", b"4"]
    assert read_batch_header(batch, 0, len(batch)).compression == Codec.SNAPPY


def test_raw_snappy_of_librdkafka_is_read() -> None:
    inner = message_set(1, Codec.NONE, records(b"a", b"b"))
    wrapper = bytearray()
    write_message(wrapper, 1, Record(1, T, None, bytes(cramjam.snappy.compress_raw(inner))), Codec.SNAPPY)
    assert [value for _, _, _, value in rows_of_batch(batch_of(bytes(wrapper)))] == [b"a", b"b"]


def test_lz4_with_the_right_header_checksum_in_magic_0_is_read_too() -> None:
    inner = message_set(0, Codec.NONE, records(b"a"))
    wrapper = bytearray()
    write_message(wrapper, 0, Record(0, -1, None, compress(Codec.LZ4, inner)), Codec.LZ4)
    assert len(rows_of_batch(batch_of(bytes(wrapper)))) == 1


def test_lz4_for_magic_0_has_the_checksum_that_clients_of_0_8_write() -> None:
    for message_set, covers in ((MAGIC_0, 0), (MAGIC_1, 4)):
        start = message_set[Codec.LZ4].index(LZ4_MAGIC)
        header = message_set[Codec.LZ4][start : start + 7]
        assert header[6] == lz4_header_checksum(header[covers:6])
    ours = compress(Codec.LZ4, b"records", faulty_lz4=True)
    assert ours[6] == lz4_header_checksum(ours[:6])


def test_each_set_is_judged_alone() -> None:
    good = message_set(1, Codec.NONE, records(b"a"))
    bad = bytearray(good)
    bad[-1] ^= 1
    first, second, third, fourth = batches_of((good, bytes(bad), b"", good))
    assert isinstance(first, bytes) and first == fourth
    assert isinstance(second, Corrupt) and "crc" in second.reason
    assert third is None


def corrupt_sets() -> dict[str, bytes]:
    one = message_set(1, Codec.NONE, records(b"a"))
    wrapper = message_set(1, Codec.GZIP, records(b"a"))
    nested, null, zstd, negative = bytearray(), bytearray(), bytearray(), bytearray()
    write_message(nested, 1, Record(0, T, None, compress(Codec.GZIP, wrapper)), Codec.GZIP)
    write_message(null, 1, Record(0, T, None, None), Codec.GZIP)
    write_message(zstd, 1, Record(0, T, None, b"what"), 6)
    write_message(negative, 1, Record(0, -2, None, b"a"))
    return {
        "cut short": one[:-1],
        "a batch of today": batch_of(one),
        "a wrapper in a wrapper": bytes(nested),
        "a wrapper of nothing": bytes(null),
        "a codec that nobody knows": bytes(zstd),
        "a time before all times": bytes(negative),
        "a size below zero": struct.pack(">qi", 0, -5) + one[12:],
    }


@pytest.mark.parametrize("what", corrupt_sets())
def test_what_is_no_message_set_is_said_to_be_corrupt(what: str) -> None:
    (found,) = batches_of((corrupt_sets()[what],))
    assert isinstance(found, Corrupt) and found.reason


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_no_more_comes_out_than_is_allowed(codec: Codec) -> None:
    bomb = compress(codec, bytes(PLENTY))
    assert len(decompress(codec, bomb, Allowance(PLENTY))) == PLENTY
    with pytest.raises(WireError):
        decompress(codec, bomb, Allowance(PLENTY - 1))


def test_the_bound_is_for_all_sets_of_a_request_together(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = message_set(1, Codec.GZIP, records(bytes(600_000)))
    monkeypatch.setattr(conversion, "MOST_DECOMPRESSED", PLENTY)
    first, second = batches_of((bomb, bomb))
    assert isinstance(first, bytes)
    assert isinstance(second, Corrupt) and "more comes out" in second.reason


def test_a_request_has_only_so_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "MOST_RECORDS", 3)
    two = message_set(1, Codec.GZIP, records(b"a", b"b"))
    first, second, third = batches_of((two, two, message_set(1, Codec.NONE, records(b"c"))))
    assert isinstance(first, bytes) and isinstance(third, bytes)
    assert isinstance(second, Corrupt) and "more records" in second.reason


# --- down --------------------------------------------------------------------------------------------------------


@each_codec
def test_a_0_8_client_reads_back_what_it_wrote(codec: Codec) -> None:
    found = down(stored_batch(MAGIC_0[codec], 40), 0, 40)
    assert rows_of_set(found.messages) == [(40, -1, b"k", b"apple"), (41, -1, None, b"pear"), (42, -1, b"gone", None)]
    assert found.next_offset == 43
    if codec is Codec.NONE:
        assert down(stored_batch(MAGIC_0[codec], 0), 0).messages == MAGIC_0[codec]


@each_codec
def test_a_0_10_client_reads_times_and_absolute_offsets(codec: Codec) -> None:
    found = down(stored_batch(MAGIC_1[codec], 100), 1, 100)
    assert rows_of_set(found.messages) == rows_of_set(MAGIC_1[codec])
    if codec is Codec.NONE:
        assert found.messages == MAGIC_1[codec]


@each_codec
def test_another_reader_finds_the_same_in_the_messages(codec: Codec) -> None:
    messages = MemoryRecords(down(stored_batch(MAGIC_1[codec], 7), 1, 7).messages)
    found: list[tuple[Any, ...]] = []
    while messages.has_next():
        batch = messages.next_batch()
        assert batch is not None and batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    assert found == [(7, T, b"k", b"apple"), (8, T + 2, None, b"pear"), (9, T + 1, b"gone", None)]


@each_magic
@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)
def test_reading_begins_at_the_offset_that_was_asked_for(magic: int, codec: Codec) -> None:
    stored = stored_batch(message_set(1, codec, records(b"a", b"b", b"c")), 10)
    assert [offset for offset, _, _, _ in rows_of_set(down(stored, magic, 11).messages)] == [11, 12]


@each_magic
def test_zstd_becomes_gzip(magic: int) -> None:
    plain_batch = bytearray(stored_batch(message_set(1, Codec.NONE, records(b"a", b"b")), 0))
    body = compress(Codec.ZSTD, plain_batch[61:])
    found = down(with_body(plain_batch, body, Codec.ZSTD), magic)
    (group,) = read_message_set(found.messages, 0, len(found.messages), Allowance(PLENTY))
    assert group.codec is Codec.GZIP
    assert [value for _, _, _, value in rows(group)] == [b"a", b"b"]


def with_body(batch: bytearray, body: bytes, attributes: int) -> bytes:
    head = bytearray(batch[:61])
    struct.pack_into(">i", head, 8, 49 + len(body))
    struct.pack_into(">h", head, 21, attributes)
    whole = head + body
    struct.pack_into(">I", whole, 17, crc32c(bytes(whole[21:])))
    return bytes(whole)


def test_log_append_time_stays_what_it_is() -> None:
    batch = bytearray(stored_batch(MAGIC_1[Codec.GZIP], 0))
    found = down(with_body(batch, bytes(batch[61:]), Codec.GZIP | 0x08), 1)
    (group,) = read_message_set(found.messages, 0, len(found.messages), Allowance(PLENTY))
    assert group.log_append_time
    assert [time for _, time, _, _ in rows(group)] == [T + 2] * 3, "the batch's own time is its highest"


def test_markers_of_transactions_are_passed_over() -> None:
    batch = bytearray(stored_batch(message_set(1, Codec.NONE, records(b"a")), 5))
    marker = with_body(batch, bytes(batch[61:]), 0x30)
    assert down(marker, 1, 5) == Readable(b"", 6), "nothing to read, and where to go on"
    after = stored_batch(message_set(1, Codec.NONE, records(b"b")), 6)
    assert [row[0] for row in rows_of_set(down(marker + after, 1, 5).messages)] == [6]


def test_what_a_broker_cut_short_is_left_for_the_next_fetch() -> None:
    first, second = (stored_batch(message_set(1, Codec.GZIP, records(b"a")), at) for at in (0, 1))
    assert down(first + second[:-1], 1).next_offset == 1
    assert down(first + second[:5], 1).next_offset == 1


@each_magic
def test_messages_that_an_older_broker_keeps_are_read_as_well(magic: int) -> None:
    kept = message_set(0, Codec.NONE, records(b"a")) + message_set(1, Codec.LZ4, records(b"b", b"c", first=1))
    assert [(o, v) for o, _, _, v in rows_of_set(down(kept, magic).messages)] == [(0, b"a"), (1, b"b"), (2, b"c")]


@each_magic
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.name)
def test_whole_messages_up_to_the_maximum_and_one_at_least(magic: int, codec: Codec) -> None:
    stored = b"".join(stored_batch(message_set(1, codec, records(bytes(200))), at) for at in range(5))
    all_of_it = down(stored, magic).messages
    assert len(rows_of_set(all_of_it)) == 5
    one = len(all_of_it) // 5
    assert len(rows_of_set(down(stored, magic, max_bytes=3 * one + one // 2).messages)) == 3
    assert len(rows_of_set(down(stored, magic, max_bytes=1).messages)) == 1


def test_all_partitions_together_keep_to_the_maximum() -> None:
    stored = Stored(stored_batch(message_set(1, Codec.NONE, records(bytes(200))), 0), 0, PLENTY)
    first, second, third = message_sets_of((stored, stored, stored), 1, 300)
    assert isinstance(first, Readable) and isinstance(second, Readable)
    assert first.messages and second.messages
    assert third == Readable(b"", 0)


def test_a_damaged_batch_harms_no_other_partition() -> None:
    good = stored_batch(message_set(1, Codec.NONE, records(b"a")), 0)
    bad, fine = message_sets_of((Stored(good[:-1] + b"x", 0, PLENTY), Stored(good, 0, PLENTY)), 1, PLENTY)
    assert isinstance(bad, Corrupt) and "crc" in bad.reason
    assert isinstance(fine, Readable) and fine.messages


texts = st.none() | st.binary(max_size=300)


@settings(max_examples=20 * REPEAT, deadline=None)
@given(
    content=st.lists(st.tuples(st.integers(-1, 1 << 61), texts, texts), min_size=1, max_size=20),
    codec=st.sampled_from(OLD_CODECS),
    magic=st.sampled_from([0, 1]),
    first=st.integers(0, 1 << 40),
)
def test_up_and_down_again_nothing_is_lost_or_invented(
    content: list[tuple[int, bytes | None, bytes | None]], codec: Codec, magic: int, first: int
) -> None:
    written = [Record(i, time, key, value) for i, (time, key, value) in enumerate(content)]
    found = down(stored_batch(message_set(magic, codec, written), first), magic, first)
    assert rows_of_set(found.messages) == [
        (first + i, time if magic else -1, key, value) for i, (time, key, value) in enumerate(content)
    ]
