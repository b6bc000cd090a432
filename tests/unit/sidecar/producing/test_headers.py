"""Headers of records: what their request says for all of them, and what each says for itself."""

import base64

import pytest

from mesh.tracing.context import Trace
from services.sidecar.producing.headers import HeaderWriter, RequestHeaders
from services.sidecar.producing.produce_request import RecordRequest
from services.sidecar.records import Headers

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = RequestHeaders(correlation_id="c", trace=Trace(PARENT, "vendor=1"))


def headers_of(record: RecordRequest, request: RequestHeaders = TRACED) -> Headers:
    return HeaderWriter(request).of(record)


def correlation_id(writer: HeaderWriter) -> bytes:
    """What the next record gets that has nothing else."""
    ((_, value),) = writer.of(RecordRequest())
    assert isinstance(value, bytes)
    return value


def test_tracing_comes_first_then_the_records_own_in_their_order() -> None:
    record = RecordRequest(traceability_id="t", correlation_id="c", headers=[("b", b"2"), ("a", b"1")])
    assert headers_of(record, RequestHeaders()) == [
        ("X-Traceability-Id", b"t"),
        ("X-Correlation-Id", b"c"),
        ("b", b"2"),
        ("a", b"1"),
    ]


def test_the_members_win_over_headers_of_the_same_name() -> None:
    record = RecordRequest(correlation_id="c", headers=[("x-correlation-id", b"other"), ("X-TRACEABILITY-ID", b"t")])
    assert headers_of(record, RequestHeaders()) == [("X-Traceability-Id", b"t"), ("X-Correlation-Id", b"c")]


def test_a_record_without_ids_takes_those_of_its_request() -> None:
    request = RequestHeaders(correlation_id="c", traceability_id="t")
    assert headers_of(RecordRequest(), request) == [("X-Traceability-Id", b"t"), ("X-Correlation-Id", b"c")]
    record = RecordRequest(correlation_id="own")
    assert headers_of(record, request) == [("X-Traceability-Id", b"t"), ("X-Correlation-Id", b"own")]


def test_records_of_a_request_without_ids_get_their_own_which_look_like_the_originals() -> None:
    writer = HeaderWriter(RequestHeaders())
    ids = [correlation_id(writer) for _ in range(1000)]
    ids += [correlation_id(HeaderWriter(RequestHeaders()))]
    assert len({base64.urlsafe_b64decode(one + b"==") for one in ids}) == 1001
    assert {len(one) for one in ids} == {22}


def test_records_that_say_nothing_share_one_list() -> None:
    writer = HeaderWriter(TRACED)
    assert writer.of(RecordRequest()) is writer.of(RecordRequest())


def test_the_trace_of_the_request_goes_into_its_records() -> None:
    assert headers_of(RecordRequest()) == [
        ("X-Correlation-Id", b"c"),
        ("traceparent", PARENT.encode()),
        ("tracestate", b"vendor=1"),
    ]


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "tracestate"])
def test_a_records_own_trace_wins_as_a_whole(name: str) -> None:
    own = (name, b"own")
    assert headers_of(RecordRequest(headers=[own])) == [("X-Correlation-Id", b"c"), own]


@pytest.mark.parametrize(
    ("parents", "states", "carried"),
    [
        ([PARENT], [], Trace(PARENT)),
        ([PARENT], ["a=1", "b@c=2"], Trace(PARENT, "a=1,b@c=2")),
        ([f"01{PARENT[2:]}-more"], [], Trace(f"01{PARENT[2:]}-more")),
        ([PARENT], ["A=1"], Trace(PARENT)),
        ([PARENT], ["a=" + 511 * "x"], Trace(PARENT)),
        ([PARENT], [",".join(f"k{n}=1" for n in range(33))], Trace(PARENT)),
        ([], ["a=1"], Trace()),
        ([PARENT, PARENT], [], Trace()),
        ([PARENT.upper()], [], Trace()),
        ([f"{PARENT}-more"], [], Trace()),
        ([f"ff{PARENT[2:]}"], [], Trace()),
        ([PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)], [], Trace()),
        ([PARENT.replace("b7ad6b7169203331", "0" * 16)], [], Trace()),
        (["00-12-34-01"], ["a=1"], Trace()),
    ],
)
def test_only_a_valid_trace_is_carried(parents: list[str], states: list[str], carried: Trace) -> None:
    assert Trace.of(parents, states) == carried


def test_what_is_fixed_stands_in_front() -> None:
    request = RequestHeaders(correlation_id="c", fixed=(("authorization", b"Bearer x"), ("caller_id", b"orders")))
    assert headers_of(RecordRequest(), request) == [
        ("authorization", b"Bearer x"),
        ("caller_id", b"orders"),
        ("X-Correlation-Id", b"c"),
    ]
