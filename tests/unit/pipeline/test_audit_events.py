"""What audit topics hold becomes rows of one shape, or is told to be none of them, and why."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import confluent_kafka
import pytest

from mesh.rpc import admin

pyarrow = pytest.importorskip("pyarrow")

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000
CALLS = "mesh.audit"


class Message:
    """As a consumer gives it."""

    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def key(self) -> bytes:
        return b"\x00k"

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return [("h", b"\xff")]


def event(**members: Any) -> dict[str, Any]:
    """As a sidecar writes one."""
    told = {
        "id": str(uuid.uuid4()), "serviceId": "shop-1", "auditType": "PRODUCER", "topic": "orders", "partition": 0,
        "offset": 7, "correlationId": "5Cl", "auditStatus": "SUCCESS", "timestamp": NOW_MS, **members,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value is not None}


def rows(
    *values: dict[str, Any] | bytes | None, topic: str = "sidecar-audit", times: Sequence[int | None] | None = None
) -> list[dict[str, Any]]:
    from services.pipeline.auditing.events import Records, events_of

    given = [json.dumps(each).encode() if isinstance(each, dict) else each for each in values]
    messages = cast("list[confluent_kafka.Message]", [Message(each) for each in given])
    records = Records(topic, 3, range(len(given)), times or [NOW_MS] * len(given), given, messages)
    found: list[dict[str, Any]] = events_of(records, "c1", calls_topic=CALLS).to_pylist()
    return found


def test_an_event_is_a_row_with_its_origin() -> None:
    told = event(id="0AF76519-16cd-43dd-8448-eb211c80319c", traceId="t", key="bob", stacktrace="boom\n\tline 1")
    [row] = rows(told)
    at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert row == {
        "time": at, "event_id": "0af76519-16cd-43dd-8448-eb211c80319c", "cluster_name": "c1", "service_id": "shop-1",
        "audit_type": "PRODUCER", "audit_status": "SUCCESS", "topic": "orders", "partition": 0, "offset": 7,
        "correlation_id": "5Cl", "traceability_id": None, "trace_id": "t", "key": "bob",
        "stacktrace": "boom\n\tline 1", "actor": None, "method": None, "source_topic": "sidecar-audit",
        "source_partition": 3, "source_offset": 0, "source_time": at, "day": at.date(), "problem": None,
        "raw_key": None, "raw_value": None, "raw_headers": None,
    }  # fmt: skip


NO_EVENTS: dict[bytes | None, str] = {
    None: "it has no value",
    b"\xff\xfe": "it is no UTF-8",
    b'{"id": "\xff"}': "it is no UTF-8",
    b"": "it is no JSON object",
    b"boom": "it is no JSON object",
    b'{"id": ': "it is no JSON object",
    b"[{}]": "it is no JSON object",
    b"null": "it is no JSON object",
    json.dumps(event(id="seven")).encode(): "id is no UUID",
    json.dumps(event(id=None)).encode(): "id is no UUID",
    json.dumps(event(auditType=None)).encode(): "auditType is missing",
    json.dumps(event(auditStatus="")).encode(): "auditStatus is missing",
    json.dumps(event(timestamp="soon")).encode(): "timestamp is no time in milliseconds",
    json.dumps(event(timestamp=None)).encode(): "timestamp is no time in milliseconds",
    json.dumps(event(timestamp=True)).encode(): "timestamp is no time in milliseconds",
    json.dumps(event(timestamp=2**70)).encode(): "timestamp is no time in milliseconds",
    json.dumps(event(timestamp=0)).encode(): "timestamp is no time in milliseconds",
    json.dumps(event(timestamp=NOW_MS + 3 * DAY_MS)).encode(): "timestamp is more than a day ahead of the clocks here",
    json.dumps(event(timestamp=2**62)).encode(): "timestamp is more than a day ahead of the clocks here",
}


def test_what_is_no_event_says_why_and_is_kept_as_it_came_among_others_that_are() -> None:
    good = event()
    found = rows(*NO_EVENTS, good)
    assert {row["raw_value"]: row["problem"] for row in found[:-1]} == NO_EVENTS
    for row in found[:-1]:
        assert (row["time"], row["day"], row["raw_key"], row["raw_headers"]) == (
            None, None, b"\x00k", [{"key": "h", "value": b"\xff"}]
        )  # fmt: skip
    assert (found[-1]["event_id"], found[-1]["problem"], found[-1]["raw_value"]) == (good["id"], None, None)


def test_clocks_may_be_a_day_ahead_of_kafkas_and_not_of_ours() -> None:
    ahead, at_once = event(timestamp=NOW_MS + DAY_MS // 2), event(timestamp=NOW_MS - DAY_MS // 2)
    of_a_broken_clock = event(timestamp=NOW_MS + 3 * DAY_MS)
    found = rows(ahead, at_once, of_a_broken_clock, ahead, times=[NOW_MS, NOW_MS - 3 * DAY_MS, NOW_MS * 2, None])
    assert [row["problem"] is None for row in found] == [True, False, False, True]


def test_members_of_other_types_are_shown_as_json_and_numbers_may_be_texts() -> None:
    [row] = rows(event(correlationId=5, key={"a": [1, None]}, topic=True, timestamp=str(NOW_MS), offset=" 8 "))
    assert [row[name] for name in ("correlation_id", "key", "topic", "offset", "problem")] == [
        "5", '{"a":[1,null]}', "true", 8, None
    ]  # fmt: skip


@pytest.mark.parametrize("member", ["key", "id", "auditType"])
def test_a_member_that_is_too_deep_to_be_shown_is_a_problem_of_its_event_alone(member: str) -> None:
    deep = json.dumps(event(**{member: "X"})).replace('"X"', "[" * 600 + "]" * 600).encode()
    [before, row, after] = rows(event(), deep, event(key=7))
    assert (row["problem"], row["raw_value"]) == ("a member is too deep to be shown", deep)
    assert [(each["problem"], each["key"]) for each in (before, after)] == [(None, None), (None, "7")]


@pytest.mark.parametrize("time_ms", [253_402_300_800_000, NOW_MS * 1_000, 2**63 - 1])
def test_a_time_of_kafkas_that_no_calendar_has_is_none(time_ms: int) -> None:
    [row, other] = rows(event(), event(), times=[time_ms, NOW_MS])
    assert (row["source_time"], row["problem"]) == (None, None)
    assert other["source_time"] == datetime.fromtimestamp(NOW_MS / 1000, UTC)


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 253_402_300_800])
def test_a_call_whose_time_no_calendar_has_is_none(seconds: int) -> None:
    call = admin.AuditEvent(audit_id=str(uuid.uuid4()), code="OK")
    call.time.seconds = seconds
    [row] = rows(call.SerializeToString(), topic=CALLS)
    assert row["problem"] in ("it is no JSON object", "it is no UTF-8")
    assert row["raw_value"] == call.SerializeToString()


def test_places_that_are_none_are_left_out() -> None:
    found = rows(event(partition=-1, offset=-1), event(partition=2**31, offset=2**63), event(partition=1.5, offset=[]))
    assert [(row["partition"], row["offset"]) for row in found] == [(None, None)] * 3


def test_texts_are_cut_by_characters() -> None:
    [row] = rows(event(key="🍎" * 5_000, correlationId="ü" * 300))
    assert (row["key"], row["correlation_id"]) == ("🍎" * 4_096, "ü" * 256)


def test_a_service_that_has_no_name_has_an_empty_one() -> None:
    [row] = rows(event(serviceId=None))
    assert row["service_id"] == ""


def test_calls_of_control_are_events_in_their_topic_alone() -> None:
    call = admin.AuditEvent(audit_id=str(uuid.uuid4()), actor="ada", code="OK")
    call.time.FromMilliseconds(NOW_MS)
    [of_call, of_sidecar, broken] = rows(call.SerializeToString(), event(), b"\x00", topic=CALLS)
    assert (of_call["event_id"], of_call["actor"], of_call["audit_type"]) == (call.audit_id, "ada", "CONTROL")
    assert of_sidecar["audit_type"] == "PRODUCER"
    assert (broken["problem"], broken["raw_value"]) == ("it is no JSON object", b"\x00")
    [elsewhere] = rows(call.SerializeToString())
    assert elsewhere["problem"] is not None


def test_a_batch_that_is_read_again_later_has_the_same_malformed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    from services.pipeline.auditing.events import Records, events_of

    values = [json.dumps(event(timestamp=NOW_MS + 2 * DAY_MS)).encode()]
    messages = cast("list[confluent_kafka.Message]", [Message(values[0])])
    records = Records("audit", 0, [0], [NOW_MS + 2 * DAY_MS], values, messages)
    first = events_of(records, "c1", planned_ms=NOW_MS)
    monkeypatch.setattr(time, "time", lambda: (NOW_MS + 3 * DAY_MS) / 1000)
    assert events_of(records, "c1", planned_ms=NOW_MS) == first
    assert first.column("problem").to_pylist() == ["timestamp is more than a day ahead of the clocks here"]
