"""Hostile bytes give a message or a `WireError`, and take no more memory than the bytes justify.

Each run has new examples. `MESH_REPEAT` multiplies their number; `make soak` sets it, and takes the versions between
the oldest and the newest one of each message too.
"""

import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.wire.batches import batches, patch_producer_id
from services.gateway.wire.codec import decode, encode
from services.gateway.wire.frames import FrameSplitter, parse_request_header, parse_response_header
from services.gateway.wire.messages import (
    DescribeGroupsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from services.gateway.wire.messages.consumer_protocol import subscription_of
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import MessageSpec, Struct
from tests.fixtures.sweeps import REPEAT, ends
from tests.unit.gateway.wire.both_walks import PYTHON, Walks, both
from tests.unit.gateway.wire.records import batch
from tests.unit.gateway.wire.strategies import every_version, message_id, structs

Scan = Callable[[bytes, int, int, int], object]
# As Python: test_walks_agree.py has the compiled ones do the same, whatever the bytes.
SCANS: list[tuple[Scan, type[Struct], int]] = [
    (scan, cls, version)
    for scan, cls, newest in (
        (PYTHON.scan_produce, ProduceRequest, 13),
        (PYTHON.scan_fetch_request, FetchRequest, 18),
        (PYTHON.scan_fetch_response, FetchResponse, 18),
    )
    for version in range(newest + 1)
]
some = settings(max_examples=5 * REPEAT, deadline=None, suppress_health_check=list(HealthCheck))
more = settings(max_examples=25 * REPEAT, deadline=None, suppress_health_check=list(HealthCheck))
each_version = pytest.mark.parametrize(("spec", "version"), ends(every_version()), ids=message_id)
each_scan = pytest.mark.parametrize(
    ("scan", "cls", "version"), SCANS, ids=lambda value: getattr(value, "__name__", None)
)

LIES = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 6,
]
"""Lengths and counts that a liar would send: -1, the greatest, the least, and varints of the same kind."""


def quiet(read: Callable[[], object]) -> None:
    """Anything but a `WireError` fails the test."""
    try:
        read()
    except WireError as error:
        assert str(error)


def damaged(data: st.DataObject, body: bytes) -> bytes:
    """A real message with a few bytes changed, or a lie written over some of them."""
    out = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(out)))
        lie = data.draw(st.sampled_from(LIES) | st.binary(min_size=1, max_size=3))
        out[at : at + len(lie)] = lie
    return bytes(out)


@each_version
@some
@given(body=st.binary(max_size=120))
def test_decoding_noise(spec: MessageSpec, version: int, body: bytes) -> None:
    quiet(lambda: decode(spec.cls, version, body))


@each_version
@some
@given(data=st.data())
def test_decoding_damaged_messages(spec: MessageSpec, version: int, data: st.DataObject) -> None:
    body = encode(data.draw(structs(spec.cls, version)), version)
    quiet(lambda: decode(spec.cls, version, damaged(data, body)))


@each_version
@settings(max_examples=2 * REPEAT, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_message_cut_short_is_never_taken_for_whole(spec: MessageSpec, version: int, data: st.DataObject) -> None:
    body = encode(data.draw(structs(spec.cls, version)), version)
    for cut in range(min(len(body), 200)):
        with pytest.raises(WireError):
            decode(spec.cls, version, body, 0, cut)


@each_scan
@more
@given(body=st.binary(max_size=200))
def test_scanning_noise(scan: Scan, cls: type[Struct], version: int, body: bytes) -> None:
    quiet(lambda: scan(body, version, 0, len(body)))


@each_scan
@more
@given(data=st.data())
def test_a_scan_accepts_what_the_codec_accepts(
    scan: Scan, cls: type[Struct], version: int, data: st.DataObject
) -> None:
    """The scanner may be laxer (it opens no names of forgotten topics), never stricter, and never crashes."""
    body = damaged(data, encode(data.draw(structs(cls, version)), version))
    try:
        decode(cls, version, body)
    except WireError:
        quiet(lambda: scan(body, version, 0, len(body)))
    else:
        scan(body, version, 0, len(body))


@each_scan
@some
@given(data=st.data())
def test_a_scan_takes_no_message_cut_short(scan: Scan, cls: type[Struct], version: int, data: st.DataObject) -> None:
    body = encode(data.draw(structs(cls, version)), version)
    for cut in range(min(len(body), 300)):
        with pytest.raises(WireError):
            scan(body, version, 0, cut)


@more
@given(payload=st.lists(st.binary(min_size=4, max_size=40), max_size=6), cuts=st.lists(st.integers(0, 250), max_size=8))
def test_a_stream_gives_the_same_frames_however_it_arrives(payload: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in payload)
    splitter = FrameSplitter(max_frame_bytes=40)
    found, pending = [], b""
    bounds = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    for start, end in pairwise(bounds):
        pending += stream[start:end]
        split = splitter.split(pending, 0, len(pending))
        found += [pending[begin:stop] for begin, stop in split.frames]
        pending = pending[split.rest :]
    assert found == payload
    assert not pending


@more
@given(noise=st.binary(max_size=60))
def test_streams_and_headers_of_noise(noise: bytes) -> None:
    quiet(lambda: FrameSplitter(max_frame_bytes=50).split(noise, 0, len(noise)))
    quiet(lambda: parse_request_header(noise, 0, len(noise)))
    quiet(lambda: parse_response_header(noise, 0, len(noise), 3, 9))
    quiet(lambda: subscription_of(noise))


@more
@given(data=st.data())
def test_damaged_batches(data: st.DataObject) -> None:
    records = damaged(data, bytes(batch(b"one")) + bytes(batch(b"two", producer_id=4)))
    quiet(lambda: list(batches(records, 0, len(records))))
    quiet(lambda: patch_producer_id(bytearray(records), 0, 7))


MIB = 1 << 20


def count_of(elements: int) -> bytes:
    """A compact count, written with five bytes so that it is always the same size."""
    value = elements + 1
    return bytes([value >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)]) + b"\x00"


@pytest.mark.parametrize(
    ("cls", "version", "body"),
    [
        pytest.param(MetadataRequest, 1, b"\x7f\xff\xff\xff" + bytes(MIB), id="count beyond the bytes"),
        pytest.param(MetadataRequest, 9, count_of(MIB) + b"\x01\x00" * MIB, id="million empty topics"),
        pytest.param(OffsetFetchRequest, 8, count_of(MIB) + b"\x01\x01\x00" * MIB, id="million empty groups"),
        pytest.param(DescribeGroupsResponse, 0, bytes(3) + b"\x02" + bytes(MIB), id="empty groups"),
        pytest.param(MetadataRequest, 9, b"\x00\x00\x00\x00" + count_of(MIB) + bytes(2 * MIB), id="million tags"),
    ],
)
def test_lies_about_numbers_cost_little(cls: type[Struct], version: int, body: bytes) -> None:
    quiet(lambda: decode(cls, version, b""))  # compile before measuring
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(cls, version, body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * MIB


@both
@pytest.mark.parametrize("version", [8, 9])
def test_a_produce_of_a_million_partitions_costs_little(walks: Walks, version: int) -> None:
    head = b"\xff\xff" if version < 9 else b"\x00"
    head += b"\x00\x01" + bytes(4)
    if version < 9:
        body = head + b"\x00\x00\x00\x01" + b"\x00\x01t" + MIB.to_bytes(4, "big") + bytes(8 * MIB)
    else:
        body = head + b"\x02" + b"\x02t" + count_of(MIB) + bytes(6 * MIB) + b"\x00\x00"
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="more than one message may hold"):
            walks.scan_produce(body, version, 0, len(body))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * MIB
