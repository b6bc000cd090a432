"""Numbers that `octets` writes, in Python and, inside compiled modules, in C: as Kafka has them, up to their ends."""

from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.gateway.requests.records import fetch_writing
from services.gateway.requests.records.fetch_sessions import Position
from services.gateway.wire.primitives import write_compact_count
from services.gateway.wire.scanner.fetch_join import Entries, join_fetch_response
from services.gateway.wire.scanner.walks import octets

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
COUNTS = (0, 1, 126, 127, 128, 16_382, 16_383)
BEFORE = b"before"


@given(INT32, INT64)
@example(-(1 << 31), -(1 << 63))
@example((1 << 31) - 1, (1 << 63) - 1)
@example(-1, -1)
@example(1 << 16, 1 << 32)
@example(0, (1 << 32) - 1)
@example(0, -(1 << 32) - 1)
def test_numbers_go_behind_those_before(small: int, large: int) -> None:
    expected = pack(">iq", small, large)
    out = bytearray(BEFORE)
    octets.add32(out, small)
    octets.set64(out, octets.extend(out, 8), large)
    octets.put32(out, 1, small)
    assert bytes(out) == BEFORE[:1] + expected[:4] + BEFORE[5:] + expected
    for version, packed in (
        (4, pack(">iqi", small, large, small)),
        (5, pack(">iqqi", small, large, -1, small)),
        (9, pack(">iiqqi", small, -1, large, -1, small)),
        (12, pack(">iiqiqib", small, -1, large, -1, -1, small, 0)),
    ):
        entry = bytearray(BEFORE)
        fetch_writing._write_entry(entry, version, small, Position(large, small))
        assert bytes(entry) == BEFORE + packed


@pytest.mark.parametrize("count", COUNTS)
def test_counts_are_as_long_as_they_need(count: int) -> None:
    expected = bytearray(BEFORE)
    write_compact_count(expected, count, "count")
    out = bytearray(BEFORE)
    octets.add_count(out, True, count)
    assert out == expected
    for version, written in ((12, expected[len(BEFORE) :]), (11, pack(">i", count))):
        answer = b"".join(join_fetch_response(version, [Entries("t", b"", ())] * count, session_id=-2))
        assert answer.startswith(bytes(6) + pack(">i", -2) + written)
