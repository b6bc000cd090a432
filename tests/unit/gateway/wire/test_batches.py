"""Batch headers, and producer ids that change without the payload being touched."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.wire.batches import (
    MINTED,
    batches,
    crc_is_right,
    make_ordinary,
    mint_producer_id,
    patch_producer,
    patch_producer_id,
    read_batch_header,
    visit_producer_id,
)
from services.gateway.wire.primitives import WireError
from tests.unit.gateway.wire.records import batch

IDS = st.integers(0, (1 << 63) - 1)
EPOCHS = st.integers(-1, (1 << 15) - 1)


def test_a_header_is_read_where_it_lies() -> None:
    buffer = b"before" + batch(producer_id=9, epoch=1, sequence=40, count=3, base_offset=100, attributes=0x13)
    header = read_batch_header(buffer, 6, len(buffer))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (9, 1, 40, 3)
    assert (header.base_offset, header.compression, header.end) == (100, 3, len(buffer))
    assert header.is_idempotent
    assert not header.is_control
    assert crc_is_right(buffer, header)


def test_batches_are_walked_and_must_be_whole_in_a_produce() -> None:
    buffer = batch(b"one") + batch(b"three")
    assert [header.start for header in batches(buffer, 0, len(buffer))] == [0, len(batch(b"one"))]
    with pytest.raises(WireError, match=r"batch\.length"):
        list(batches(buffer, 0, len(buffer) - 1))


def test_old_messages_are_named_as_such() -> None:
    old = bytearray(100)
    old[16] = 1
    with pytest.raises(WireError, match="1 \\(a batch has magic 2\\)"):
        read_batch_header(old, 0, 100)


@settings(deadline=None)
@given(old=IDS, new=IDS, payload=st.binary(max_size=3000), linear=st.booleans())
def test_a_patched_batch_has_the_crc_of_a_batch_made_with_that_id(
    old: int, new: int, payload: bytes, linear: bool
) -> None:
    patched = batch(payload, producer_id=old)
    patch_producer_id(patched, 0, new, linear_from=0 if linear else 1 << 40)
    assert patched == batch(payload, producer_id=new)


@settings(deadline=None)
@given(old=IDS, new=IDS, epochs=st.tuples(EPOCHS, EPOCHS), payload=st.binary(max_size=3000), linear=st.booleans())
def test_the_epoch_is_patched_along_with_the_id(
    old: int, new: int, epochs: tuple[int, int], payload: bytes, linear: bool
) -> None:
    patched = batch(payload, producer_id=old, epoch=epochs[0], sequence=5)
    patch_producer(patched, 0, new, epochs[1], linear_from=0 if linear else 1 << 40)
    assert patched == batch(payload, producer_id=new, epoch=epochs[1], sequence=5)


@pytest.mark.parametrize("size", [16_300, 16_384, 70_000, 1_000_003])
def test_large_batches_too(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    buffer = bytearray(b"xx") + batch(payload[:size], producer_id=3)
    patch_producer_id(buffer, 2, MINTED + 5)
    assert buffer[2:] == batch(payload[:size], producer_id=MINTED + 5)


@settings(deadline=None)
@given(new=IDS, wrong=st.integers(1, (1 << 32) - 1), linear=st.booleans())
def test_a_corrupt_batch_stays_exactly_as_corrupt(new: int, wrong: int, linear: bool) -> None:
    buffer = batch(b"payload", producer_id=1)
    (crc,) = struct.unpack_from(">I", buffer, 17)
    struct.pack_into(">I", buffer, 17, crc ^ wrong)
    patch_producer_id(buffer, 0, new, linear_from=0 if linear else 1 << 40)
    assert read_batch_header(buffer, 0, len(buffer)).crc ^ crc32c(buffer[21:]) == wrong


@pytest.mark.parametrize("damage", [lambda b: b[:60], lambda b: b[:-1], lambda b: b[:16] + b"\x01" + b[17:]])
def test_what_is_no_batch_is_not_patched(damage: object) -> None:
    assert callable(damage)
    buffer = bytearray(damage(batch()))
    before = bytes(buffer)
    with pytest.raises(WireError):
        patch_producer_id(buffer, 0, 7)
    assert buffer == before


@given(st.integers(0, 1 << 200))
def test_minted_ids_lie_above_those_of_brokers(bits: int) -> None:
    assert MINTED <= mint_producer_id(bits) < 1 << 63


@given(IDS)
def test_the_first_visit_changes_nothing(producer_id: int) -> None:
    assert visit_producer_id(producer_id, 1) == producer_id


@given(IDS, st.integers(2, 10_000), st.integers(2, 10_000))
def test_every_later_visit_is_a_producer_of_its_own(producer_id: int, visit: int, other: int) -> None:
    there = visit_producer_id(producer_id, visit)
    assert MINTED <= there < 1 << 63
    assert there != producer_id
    assert visit_producer_id(producer_id, visit) == there
    assert (visit_producer_id(producer_id, other) == there) == (visit == other)


@given(IDS.map(mint_producer_id), IDS.map(mint_producer_id), st.integers(1, 1000))
def test_two_producers_never_become_one(one: int, other: int, visit: int) -> None:
    assert (visit_producer_id(one, visit) == visit_producer_id(other, visit)) == (one == other)


def test_the_mask_of_a_visit_never_changes() -> None:
    """Gateways of different releases work side by side: these numbers are part of the contract."""
    assert visit_producer_id(MINTED, 2) == 7_960_286_522_194_355_700
    assert visit_producer_id(7, 3) == 5_099_303_037_898_933_576


def test_no_id_stays_no_id() -> None:
    assert visit_producer_id(-1, 5) == -1


@pytest.mark.parametrize("count", [1, 3])
def test_ordinary_batches_have_no_producer_and_no_transaction_and_a_right_checksum(count: int) -> None:
    """All else stays: the codec, the times, and the records."""
    transactional, zstd = 0x10, 0x04
    fields = {"attributes": transactional | zstd, "timestamp": 77, "base_offset": 5}
    records = bytearray()
    wanted = bytearray()
    for number in range(count):
        records += batch(b"records %d" % number, producer_id=9, epoch=2, sequence=number, **fields)
        wanted += batch(b"records %d" % number, **{**fields, "attributes": zstd})
    make_ordinary(records)
    assert records == wanted
    assert all(crc_is_right(records, header) for header in batches(records, 0, len(records)))
