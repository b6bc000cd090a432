"""Small batches of a source, joined on their way to the target: readers see no difference."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from mesh.topic_logs.batches import Batch, ForeignBatchError, Writer, batches, written_by
from mesh.topic_logs.course import Gap, Step
from mesh.topic_logs.evidence import Evidence
from mesh.topic_logs.records import JOINED, OPENED, SMALL, joined

TIME = 1_700_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
Written = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
RECORDS: list[Written] = [
    (TIME, b"key", b"value", []),
    (TIME - 5000, None, b"an earlier one", [("header", b"1"), ("header", None)]),
    (TIME + 1_000_000, b"", None, [("", b"")]),
    (TIME, b"k" * 300, b"v" * 3000, [("a", b"b" * 200)]),
]


def batch(base: int, records: Iterable[Written], *, codec: int = 0, transactional: bool = False) -> Batch:
    builder = DefaultRecordBatchBuilder(2, codec, int(transactional), 7, 0, 0, 1 << 20)
    for number, (time, key, value, headers) in enumerate(records):
        builder.append(number, time, key, value, headers)
    made = bytearray(builder.build())
    struct.pack_into(">q", made, 0, base)
    [found] = batches(bytes(made))
    return found


def one_each(base: int, number: int, codec: int = 0) -> list[Batch]:
    return [batch(base + each, [RECORDS[each % len(RECORDS)]], codec=codec) for each in range(number)]


def read(steps: Iterable[Step]) -> list[tuple[object, ...]]:
    """As aiokafka reads the records of the steps."""
    found: list[tuple[object, ...]] = []
    for step in steps:
        assert isinstance(step, Batch)
        copy = bytearray(written_by(Writer(9, 0, 0), step))
        struct.pack_into(">q", copy, 0, step.base_offset)
        whole = MemoryRecords(bytes(copy)).next_batch()
        assert whole is not None
        assert whole.validate_crc()
        found += [(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in whole]
    return found


def evidence(steps: Iterable[Step], start: int = 0) -> Evidence:
    found = Evidence()
    for step in steps:
        assert isinstance(step, Batch)
        found = found.with_batch(step, start)
    return found


def test_joined_batches_have_the_same_records() -> None:
    parts = [*one_each(40, 500), batch(540, RECORDS, transactional=True)]
    [whole] = joined(parts, 1 << 20)
    assert isinstance(whole, Batch)
    assert (whole.base_offset, whole.next_offset, whole.records) == (40, 544, 504)
    assert whole.max_timestamp == TIME + 1_000_000
    assert read([whole]) == read(parts)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_compressed_batches_are_joined_to_one_of_their_codec(codec: int) -> None:
    parts = [*one_each(40, 60, codec), batch(100, RECORDS, codec=codec, transactional=True)]
    [whole] = joined(parts)
    assert isinstance(whole, Batch)
    assert (whole.base_offset, whole.next_offset, whole.records, whole.codec) == (40, 104, 64, codec)
    assert whole.max_timestamp == TIME + 1_000_000
    assert len(whole.raw) < sum(len(each.raw) for each in parts)
    assert read([whole]) == read(parts)
    assert evidence([whole]) == evidence(parts)


def test_batches_of_several_codecs_are_joined_each_with_their_own() -> None:
    parts = [*one_each(0, 3), *one_each(3, 3, LZ4), *one_each(6, 3, ZSTD), *one_each(9, 3)]
    found = [each for each in joined(parts) if isinstance(each, Batch)]
    assert [(each.next_offset, each.codec) for each in found] == [(3, 0), (6, LZ4), (9, ZSTD), (12, 0)]
    assert read(found) == read(parts)


@pytest.mark.parametrize("size", [SMALL, JOINED, OPENED])
def test_a_few_bytes_that_stand_for_many_are_not_joined(size: int) -> None:
    bomb = batch(3, [(TIME, None, bytes(size), [])], codec=GZIP)
    assert len(bomb.raw) < SMALL
    found = list(joined([*one_each(0, 3, GZIP), bomb, *one_each(4, 3, GZIP)]))
    assert [each.next_offset for each in found if isinstance(each, Batch)] == [3, 4, 7]
    assert found[1] is bomb
    assert evidence([bomb]).records == 1


def test_joined_batches_have_a_bound_of_what_comes_out_of_them() -> None:
    parts = one_each(0, 400, ZSTD)
    found = list(joined(parts, 10_000))
    assert len(found) >= sum(len(each.raw) for each in one_each(0, 400)) / 10_000
    assert evidence(each for each in found) == evidence(parts)


def test_what_can_not_be_decompressed_stays_and_counts_as_a_whole() -> None:
    parts = one_each(0, 3, LZ4)
    raw = bytearray(parts[1].raw)
    raw[61:66] = b"xxxxx"
    [bad] = batches(written_by(Writer(7, 0, 0), next(batches(bytes(raw)))))
    bad = replace(bad, base_offset=1, next_offset=2)
    assert list(joined([parts[0], bad, parts[2]])) == [parts[0], bad, parts[2]]
    assert evidence([bad]).records == 1
    assert evidence([bad]) != evidence(parts[1:2])


def test_evidence_is_the_same_however_batches_are_joined() -> None:
    parts = [*one_each(0, 30), batch(30, RECORDS, codec=LZ4), *one_each(34, 9)]
    assert evidence(parts) == evidence(joined(parts)) == evidence(joined(parts, 5000))
    assert evidence(parts).records == 43
    assert evidence(parts, 8) == evidence(joined(parts), 8) == evidence(parts[8:])


@pytest.mark.parametrize("changed", [(TIME + 1, b"key", b"value", []), (TIME, b"key", b"other", [])])
def test_evidence_tells_each_difference(changed: Written) -> None:
    assert evidence([batch(5, [changed])]) != evidence([batch(5, RECORDS[:1])])
    assert evidence([batch(6, RECORDS[:1])]) != evidence([batch(5, RECORDS[:1])])


def test_gaps_compressed_and_large_batches_stay_between_what_is_joined() -> None:
    large = batch(8, [(TIME, None, b"x" * SMALL, [])])
    gap, packed = Gap(2, 4), batch(6, RECORDS[:2], codec=LZ4)
    found = list(joined([*one_each(0, 2), gap, *one_each(4, 2), packed, large, *one_each(9, 1)]))
    assert found[1] is gap
    assert [each.next_offset for each in found if isinstance(each, Batch)] == [2, 6, 8, 9, 10]
    assert found[3:5] == [packed, large]


def test_joined_batches_have_a_bound() -> None:
    parts = one_each(0, 400)
    found = list(joined(parts, 10_000))
    assert all(isinstance(each, Batch) and len(each.raw) <= 10_000 for each in found)
    assert read(found) == read(parts)
    assert list(joined(parts, 0)) == parts


def test_a_damaged_batch_is_not_joined() -> None:
    damaged = bytearray(batch(1, RECORDS).raw)
    damaged[-1] ^= 1
    [bad] = batches(bytes(damaged))
    with pytest.raises(ForeignBatchError, match="damaged"):
        list(joined([*one_each(0, 1), bad]))
