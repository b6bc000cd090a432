"""What a call to the backend looks like."""

import json
from dataclasses import replace

from services.sidecar.consuming.instance_values import HeaderShape
from services.sidecar.delivering.call_writer import CallWriter, Content
from services.sidecar.delivering.progress import Ask
from services.sidecar.formats import Format
from tests.fixtures.deliveries import WRITTEN_AT, deliverable

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WRITER = CallWriter(Content.RECORDS, HeaderShape.MAP, Format.JSON)


def ask(*offsets: int, attempt: int = 1) -> Ask:
    return Ask([deliverable(offset, headers=[("X-Correlation-Id", b"5Cl")]) for offset in offsets], attempt)


def test_records_look_as_reads_of_an_instance_have_them() -> None:
    assert json.loads(WRITER.body(ask(7))) == [
        {
            "topic": "apples", "key": "alice", "value": {"n": 1}, "headers": {"X-Correlation-Id": "5Cl"},
            "partition": 0, "offset": 7, "timestamp": WRITTEN_AT,
        }
    ]  # fmt: skip


def test_headers_may_be_a_list_that_keeps_all_of_them() -> None:
    writer = CallWriter(Content.RECORDS, HeaderShape.LIST, Format.JSON)
    record = deliverable(7, headers=[("a", b"\xff"), ("a", None), ("x-correlation-id", b"c")])
    (shown,) = json.loads(writer.body(Ask([record], 1)))
    assert shown["headers"][:2] == [{"key": "a", "value": "/w=="}, {"key": "a", "value": None}]


def test_a_call_says_which_records_it_has_and_how_often_they_came() -> None:
    assert WRITER.headers(ask(7, 8, 9, attempt=3)) == {
        "Content-Type": "application/json",
        "Idempotency-Key": "apples-0-7-9",
        "Delivery-Attempt": "3",
    }


def test_a_replay_is_no_repetition() -> None:
    """A backend that knows what it has done would do nothing, and an operator wanted it done again."""
    again = replace(ask(7, 8, 9), occasion="replay-3f9a")
    assert WRITER.headers(again)["Idempotency-Key"] == "apples-0-7-9-replay-3f9a"


def test_a_call_with_some_of_them_is_told_from_the_one_that_had_all() -> None:
    """Some may be settled; or a replay chose some by their key, and the next one takes all; or a filter is gone."""
    some = WRITER.headers(ask(7, 9))["Idempotency-Key"]
    others = WRITER.headers(ask(7, 8, 9, 11))["Idempotency-Key"]
    assert some.startswith("apples-0-7-9-")
    assert WRITER.headers(ask(7, 9))["Idempotency-Key"] == some
    assert others != some


def test_the_trace_of_a_record_that_is_alone_goes_on() -> None:
    record = deliverable(7, headers=[("traceparent", PARENT), ("tracestate", b"a=b")])
    headers = WRITER.headers(Ask([record], 1))
    assert (headers["traceparent"], headers["tracestate"]) == (PARENT.decode(), "a=b")
    assert "traceparent" not in WRITER.headers(Ask([record, deliverable(8)], 1))
    invalid = deliverable(7, headers=[("traceparent", b"00-\r\nX-Evil: 1")])
    assert "traceparent" not in WRITER.headers(Ask([invalid], 1))


def test_cloud_events_are_themselves_and_all_others_are_put_into_one() -> None:
    writer = CallWriter(Content.CLOUD_EVENTS, HeaderShape.MAP, Format.JSON)
    event = [("ce_specversion", b"1.0"), ("ce_id", b"A1"), ("ce_source", b"/shop"), ("ce_type", b"order.placed")]
    given = Ask([deliverable(7, headers=[*event, ("content-type", b"application/json")]), deliverable(8)], 1)
    first, second = json.loads(writer.body(given))
    assert (first["id"], first["type"], first["data"]) == ("A1", "order.placed", {"n": 1})
    assert (second["id"], second["type"], second["data"]) == ("partition:0/offset:8", "kafka.mesh.record", {"n": 1})
    assert second["partitionkey"] == "alice"
    assert writer.headers(given)["Content-Type"] == "application/cloudevents-batch+json"
