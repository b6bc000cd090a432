"""Batches of a source, and the steps of their copy."""

from __future__ import annotations

import math
import struct
import subprocess
import sys

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from mesh.topic_logs.batches import (
    FILL_AT_ONCE,
    MINTED,
    Batch,
    ForeignBatchError,
    Writer,
    batches,
    filling,
    producer_of,
    written_by,
)
from mesh.topic_logs.course import Gap, steps
from mesh.topic_logs.pace import Pace

STOP = 1 << 40
WITHIN_S = 60
CONTROL = 0x20
WRITER = Writer(producer_of("move-1"), 3, 17)
LARGEST_BATCH = 1_000_000
"""Bytes that brokers take without a setting."""


def batch(base: int, records: int, producer: int = -1, *, transactional: bool = False, attributes: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, int(transactional), producer, 0, 0, 1 << 20)
    for number in range(records):
        builder.append(number, 1_700_000_000_000 + number, b"key", b"value", [("header", b"1")])
    made = bytearray(builder.build())
    struct.pack_into(">q", made, 0, base)
    (known,) = struct.unpack_from(">h", made, 21)
    struct.pack_into(">h", made, 21, known | attributes)
    return bytes(made)


def marker(base: int, producer: int) -> bytes:
    return batch(base, 1, producer, transactional=True, attributes=CONTROL)


def taken(position: int, *log: bytes, aborted: tuple[tuple[int, int], ...] = (), stop: int = STOP) -> list[str]:
    """The steps, as texts."""
    return [
        f"gap {step.start}-{step.stop}" if isinstance(step, Gap) else f"batch {step.base_offset}-{step.next_offset}"
        for step in steps(position, b"".join(log), aborted, stop)
    ]


def test_batches_follow_one_another_without_a_gap() -> None:
    assert taken(5, batch(5, 3), batch(8, 1)) == ["batch 5-8", "batch 8-9"]


def test_a_batch_that_is_cut_short_comes_with_the_next_fetch() -> None:
    assert taken(5, batch(5, 3), batch(8, 1)[:-1]) == ["batch 5-8"]


def test_markers_and_aborted_records_are_one_gap() -> None:
    log = (
        batch(0, 2, 7, transactional=True), batch(2, 5, 8, transactional=True), marker(7, 7), marker(8, 8), batch(9, 1)
    )  # fmt: skip
    assert taken(0, *log, aborted=((8, 2),)) == ["batch 0-2", "gap 2-9", "batch 9-10"]


def test_a_producer_that_aborts_may_commit_afterwards() -> None:
    log = (batch(0, 2, 8, transactional=True), marker(2, 8), batch(3, 2, 8, transactional=True), marker(5, 8))
    assert taken(0, *log, aborted=((8, 0),)) == ["gap 0-3", "batch 3-5", "gap 5-6"]


def test_a_copy_ends_at_its_stop() -> None:
    assert taken(0, batch(0, 2), batch(2, 2), stop=2) == ["batch 0-2"]


def test_a_batch_that_compaction_has_thinned_out_is_refused() -> None:
    thinned = bytearray(batch(0, 2))
    struct.pack_into(">i", thinned, 23, 4)
    with pytest.raises(ForeignBatchError, match="compaction"):
        taken(0, bytes(thinned))


def test_a_copy_that_stands_inside_a_batch_has_another_log() -> None:
    with pytest.raises(ForeignBatchError, match="another log"):
        taken(1, batch(0, 3))


def test_old_formats_are_refused() -> None:
    old = bytearray(batch(0, 1))
    old[16] = 1
    with pytest.raises(ForeignBatchError, match="format 1"):
        taken(0, bytes(old))


def test_a_copied_batch_has_the_writer_of_the_copy_and_a_right_checksum() -> None:
    [source] = batches(batch(40, 3, 9, transactional=True))
    [copy] = batches(written_by(WRITER, source))
    copy.check()
    assert (copy.producer_id, copy.is_transactional, copy.raw[61:]) == (WRITER.producer_id, False, source.raw[61:])
    there = Batch(40, 43, copy.attributes, copy.base_timestamp, copy.max_timestamp, 1, copy.records, copy.raw)
    assert there.content == source.content


def test_a_damaged_batch_is_not_copied() -> None:
    damaged = bytearray(batch(0, 1))
    damaged[-1] ^= 1
    with pytest.raises(ForeignBatchError, match="damaged"):
        next(batches(bytes(damaged))).check()


def test_sequences_begin_again_behind_the_largest() -> None:
    assert Writer(MINTED, 0, (1 << 31) - 2).after(3) == Writer(MINTED, 0, 1)
    assert WRITER.anew() == Writer(WRITER.producer_id, 4, 0)


def test_producers_of_moves_are_none_of_a_broker() -> None:
    found = {producer_of(f"move-{number}") for number in range(1000)}
    assert len(found) == 1000
    assert all(MINTED <= each < 1 << 63 for each in found)


def test_a_filling_batch_needs_no_package_that_a_router_lacks() -> None:
    filled = "filling(Writer(1, 0, 0), 9, 0)"
    code = f"import sys; sys.modules['cramjam'] = None; from mesh.topic_logs.batches import Writer, filling; {filled}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WITHIN_S)


def test_a_filling_batch_is_small_enough_for_each_broker() -> None:
    made = filling(WRITER, FILL_AT_ONCE, 1_700_000_000_000)
    assert len(made) < LARGEST_BATCH
    whole = MemoryRecords(made).next_batch()
    assert whole is not None
    assert sum(1 for _ in whole) == FILL_AT_ONCE


def test_a_copy_with_a_rate_writes_a_tenth_of_a_second_at_once() -> None:
    assert Pace(20_000).at_once == 2000
    assert Pace().at_once == math.inf
