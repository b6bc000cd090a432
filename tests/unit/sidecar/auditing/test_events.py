"""What an audit record says, and what it never says."""

import uuid

import orjson
import pytest

from services.sidecar.auditing import events
from services.sidecar.auditing.events import AuditRecord, AuditStatus, AuditType, RecordIds, audit_record
from services.sidecar.auditing.text import AuditText
from services.sidecar.records import (
    Commit,
    Consumed,
    Delivered,
    DeliveryError,
    Failed,
    Headers,
    Outcome,
    Outgoing,
    Partition,
    RawRecord,
    Reason,
    Verdict,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
TEXT = AuditText("shop-1")
IDS: Headers = [
    ("X-Correlation-Id", b"c-1"),
    ("X-Traceability-Id", b"t-1"),
    ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),
]


def shown(record: AuditRecord) -> dict[str, object]:
    return {name: value for name, value in TEXT.shown(record).items() if name not in ("id", "timestamp")}


def test_a_produced_record() -> None:
    (record,) = events.produced("orders", [Outgoing(b"alice", b"sesame", None, 0, IDS)], [Delivered(1, 7)])
    assert shown(record) == {
        "serviceId": "shop-1",
        "auditType": "PRODUCER",
        "topic": "orders",
        "partition": 1,
        "offset": 7,
        "correlationId": "c-1",
        "traceabilityId": "t-1",
        "key": "alice",
        "auditStatus": "SUCCESS",
        "traceId": TRACE,
    }
    assert TEXT.message(record)[0] == "c-1"


def test_a_record_that_was_not_written_says_why() -> None:
    lost = Failed(DeliveryError.RETRIABLE, "Local: Message timed out")
    (record,) = events.produced("orders", [Outgoing(None, b"sesame", 3, 0, [])], [lost])
    assert shown(record) == {
        "serviceId": "shop-1",
        "auditType": "PRODUCER",
        "topic": "orders",
        "partition": 3,
        "auditStatus": "FAILURE",
        "stacktrace": "50003 Local: Message timed out",
    }
    assert TEXT.message(record)[0] is None


@pytest.mark.parametrize(
    ("outcome", "reason", "said", "status", "why"),
    [
        (Outcome.SUCCESS, None, "", "SUCCESS", None),
        (Outcome.DEAD_LETTER, Reason.BACKEND, "ZeroDivisionError", "FAILURE", "ZeroDivisionError"),
        (Outcome.DEAD_LETTER, Reason.OVERSIZE, "", "FAILURE", "dead letter: oversize"),
        (Outcome.DROP, None, "", "FAILURE", "dropped: the backend does not want it"),
    ],
)
def test_a_verdict(outcome: Outcome, reason: Reason | None, said: str, status: str, why: str | None) -> None:
    raw = RawRecord("orders", 2, 8, 0, b"bob", b"sesame", [("x-correlation-id", b"header")])
    verdict = Verdict(raw, outcome, reason, said, correlation_id="result", traceability_id="t-result")
    (record,) = events.settled([verdict])
    told = shown(record)
    assert (told["auditType"], told["auditStatus"], told.get("stacktrace")) == ("REACTIVE_CONSUMER", status, why)
    assert (told["correlationId"], told["traceabilityId"]) == ("header", "t-result")  # the header comes first
    assert (told["partition"], told["offset"], told["key"]) == (2, 8, "bob")


def test_a_record_that_was_read_and_a_commit() -> None:
    consumed = Consumed("orders", 0, 5, 0, {"id": 2**70}, {"secret": 1}, [("X-Correlation-Id", b"c")], 10)
    (read,) = events.given([consumed])
    assert shown(read)["key"] == '{"id":1180591620717411303424}'
    (commit,) = events.committed([Commit(Partition("orders", 0), 6)])
    assert (commit.offset, commit.key, commit.status) == (5, None, AuditStatus.SUCCESS)
    (refused,) = events.not_committed([(Partition("orders", 0), 5)], "ERR12207 no")
    assert (refused.offset, refused.stacktrace, refused.status) == (5, "ERR12207 no", AuditStatus.FAILURE)


def test_a_log_line_shows_nulls_and_ends() -> None:
    _, line = TEXT.line(audit_record(AuditType.PRODUCER, "orders", None, None))
    assert line.endswith(b"\n")
    assert orjson.loads(line)["correlationId"] is None
    assert "traceId" not in orjson.loads(line)  # ours, and there is none
    assert list(orjson.loads(line)) == [
        "id", "serviceId", "auditType", "topic", "partition", "offset", "correlationId", "traceabilityId", "key",
        "auditStatus", "stacktrace", "timestamp",
    ]  # fmt: skip


def test_ids_are_uuids_and_differ() -> None:
    ids = events.audit_ids()
    made = [next(ids) for _ in range(2_000)]
    assert len(set(made)) == len(made)
    assert {uuid.UUID(one).version for one in made} == {4}
    assert {uuid.UUID(one).variant for one in made} == {uuid.RFC_4122}


def test_nothing_in_a_record_makes_audit_large() -> None:
    headers: Headers = [("X-Correlation-Id", b"c" * 10**6), ("X-Traceability-Id", b"t" * 10**6)]
    failure = Failed(DeliveryError.KAFKA, "x" * 10**6)
    (record,) = events.produced("orders", [Outgoing(b"k" * 10**6, b"", None, 0, headers)], [failure])
    assert len(TEXT.line(record)[1]) < 25_000
    read = Consumed("orders", 0, 5, 0, {"key": "k" * 10**6}, None, [], 10)
    assert len(TEXT.line(events.given([read])[0])[1]) < 25_000


def test_any_bytes_can_be_shown() -> None:
    record = audit_record(AuditType.PRODUCER, "t", 0, 0, key=b"\xff\x00", ids=RecordIds(b"\xfe", "\ud800", None))
    assert orjson.loads(TEXT.message(record)[1])["key"] == "\ufffd\x00"
    assert orjson.loads(TEXT.line(record)[1])["correlationId"] == "\ufffd"


@pytest.mark.parametrize(
    "traceparent", [b"", b"00-0-0-0", f"00-{'0' * 32}-b7ad6b7169203331-01".encode(), f"ff-{TRACE}-b7ad6b7169203331-01"]
)
def test_an_invalid_trace_is_none(traceparent: bytes | str) -> None:
    headers: Headers = [("traceparent", traceparent)]
    assert events.ids_in(headers).trace is None
