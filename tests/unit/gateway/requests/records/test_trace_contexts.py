"""Trace contexts in the records of a Produce, whose batches a client's own library made."""

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.tracing.context import Trace
from services.gateway.requests.records.trace_contexts import MOST_TRACES, traces_in
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.messages import ProduceRequest
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from services.gateway.wire.scanner import scan_produce

VERSION = 9
LOOK_BYTES = 64 * 1024
Headers = list[tuple[str, bytes | None]]
LENGTH_BYTE = bytes((2 * len("traceparent"),))
"""It stands before the name of each such header, and begins what is searched for."""


def context(number: int, flags: str = "01") -> str:
    return f"00-{number:032x}-b7ad6b7169203331-{flags}"


def traced(number: int, flags: str = "01") -> Headers:
    return [("a", b"b"), ("traceparent", context(number, flags).encode()), ("tracestate", b"a=1")]


def batch_of(*records: tuple[bytes, Headers], compression: int = 0) -> bytes:
    made = DefaultRecordBatchBuilder(
        magic=2, compression_type=compression, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for offset, (value, headers) in enumerate(records):
        assert made.append(offset, 1000, b"k", value, headers) is not None
    return bytes(made.build())


def found_in(*batches: bytes | None) -> tuple[Trace, ...] | None:
    """In a request for so many partitions."""
    data = [PartitionProduceData(number, records) for number, records in enumerate(batches)]
    request = ProduceRequest(None, -1, 1000, [TopicProduceData("apples", partition_data=data)])
    frame = memoryview(bytearray(encode_request(request, VERSION, 1, "traceparent")))
    header = parse_request_header(frame, SIZE_BYTES, len(frame))
    return traces_in(frame, scan_produce(frame, VERSION, header.body_offset, len(frame)))


def parents(found: tuple[Trace, ...] | None) -> list[str] | None:
    return None if found is None else [trace.parent for trace in found]


def test_the_context_of_a_record_is_found_wherever_it_stands() -> None:
    for size in range(80):
        for filling in (b"x", LENGTH_BYTE, LENGTH_BYTE + b"t"):
            assert found_in(batch_of((filling * size, traced(size + 1)))) == (Trace(context(size + 1), "a=1"),)


def test_nothing_else_is_a_context() -> None:
    for value in (b"", b"traceparent", LENGTH_BYTE + b"traceparent", LENGTH_BYTE * 100, LENGTH_BYTE + b"tracep"):
        assert found_in(batch_of((value, [("b3", b"1"), ("traceparents", context(1).encode())]))) is None
    assert found_in(batch_of((b"x", [("traceparent", b"00-zz")]))) is None
    assert found_in(batch_of((b"x", [("traceparent", None)]))) is None


def test_a_context_that_is_not_sampled_is_told_apart_from_none() -> None:
    assert found_in(batch_of((b"x", traced(1, "00")))) == ()
    assert found_in(batch_of((b"x", []))) is None


def test_partitions_and_records_have_their_contexts_each_trace_once_and_up_to_a_bound() -> None:
    both = found_in(batch_of((b"x", []), (b"y", traced(1)), (b"z", traced(1))), None, batch_of((b"x", traced(2))))
    assert parents(both) == [context(1), context(2)]
    many = found_in(batch_of(*((b"x", traced(number + 1)) for number in range(2 * MOST_TRACES))))
    assert parents(many) == [context(number + 1) for number in range(MOST_TRACES)]


def test_a_large_request_is_searched_in_its_beginning() -> None:
    before, behind = (b"x", traced(1)), (b"y" * LOOK_BYTES, traced(2))
    assert parents(found_in(batch_of(before, behind))) == [context(1)]
    assert found_in(batch_of(behind)) is None
    assert found_in(batch_of((b"x" * LOOK_BYTES, [])), batch_of(before)) is None


def test_compressed_batches_are_not_opened() -> None:
    zipped = batch_of(*[(b"", traced(1))] * 20, compression=1)
    assert found_in(zipped) is None
    assert parents(found_in(zipped, batch_of((b"x", traced(2))))) == [context(2)]


def test_contexts_are_found_among_large_records_without_headers() -> None:
    plain: list[tuple[bytes, Headers]] = [(b"x" * size, []) for size in (1_500, 0, 4_000, 130)]
    for place in range(len(plain) + 1):
        records = [*plain[:place], (b"y" * 2_000, traced(1)), *plain[place:]]
        assert parents(found_in(batch_of(*records))) == [context(1)]
    assert found_in(batch_of(*plain)) is None
    assert found_in(batch_of((LENGTH_BYTE + b"traceparent" + bytes(3_000), []))) is None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_is_never_more_than_a_missing_context(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from((0, 1, 63, 64, 2_000)), min_size=1, max_size=4))
    records = bytearray(batch_of(*((bytes(size), traced(1) if size == 1 else []) for size in sizes)))
    for place in data.draw(st.lists(st.integers(0, len(records) - 1), max_size=4)):
        records[place] = data.draw(st.integers(0, 255))
    found = found_in(bytes(records[: data.draw(st.integers(0, len(records)))]))
    assert found is None or len(found) <= MOST_TRACES


def test_damaged_records_have_no_context() -> None:
    whole = batch_of((b"x", traced(1)))
    assert found_in(whole[:-30]) is None
    assert found_in(LENGTH_BYTE + b"traceparent") is None
