"""Calls of control as audit events in the sidecars' form."""

from __future__ import annotations

import json

import pytest

from mesh.rpc import admin

pyarrow = pytest.importorskip("pyarrow")


def shown(call: bytes | None) -> dict[str, object] | None:
    from services.pipeline.auditing.events import event_of_call

    event = event_of_call(call)
    return None if event is None else json.loads(event)


def test_a_call_is_an_event_of_control_about_its_resource() -> None:
    call = admin.AuditEvent(
        audit_id="id-1", actor="ada", method="/mesh.v1.RuleService/SetRule", resource="rules/a", request_id="r-1",
        trace_id="w-1", code="OK", problem="",
    )  # fmt: skip
    call.time.FromMilliseconds(1_795_300_000_123)
    assert shown(call.SerializeToString()) == {
        "id": "id-1", "serviceId": "control", "auditType": "CONTROL", "auditStatus": "SUCCESS", "correlationId": "r-1",
        "traceId": "w-1", "key": "rules/a", "timestamp": 1_795_300_000_123, "actor": "ada",
        "method": "/mesh.v1.RuleService/SetRule",
    }  # fmt: skip


def test_a_refused_call_is_a_failure_with_its_reason() -> None:
    event = shown(admin.AuditEvent(audit_id="id-1", code="NOT_FOUND", problem="no such rule").SerializeToString())
    assert event is not None
    assert (event["auditStatus"], event["stacktrace"]) == ("FAILURE", "NOT_FOUND no such rule")


def test_what_is_no_call_is_left_as_it_is() -> None:
    assert shown(b"\xff\xff") is None
    assert shown(None) is None
