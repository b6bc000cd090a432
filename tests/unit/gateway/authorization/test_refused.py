"""Refusals are counted, told in the log and audited, within bounds."""

from __future__ import annotations

import json

from structlog.testing import capture_logs

from mesh.acls import Decision, Operation, ResourceType
from services.gateway.authorization.refusals import Refusal
from services.gateway.downstream.refused import LINES, Refused
from services.gateway.requests.auditing.invalid import InvalidBatch
from services.gateway.requests.auditing.refusals import refusal_event


def refusal(name: str = "apples", *, enforced: bool = True) -> Refusal:
    return Refusal(
        "User:bob", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, name, Decision(False), api_key=0, enforced=enforced
    )


def test_a_refusal_has_one_line_and_one_audit_record_a_minute() -> None:
    audited: list[Refusal | InvalidBatch] = []
    refused = Refused()
    refused.audit = audited.append
    with capture_logs() as logs:
        for _ in range(3):
            refused.take(refusal())
        refused.take(refusal("bananas"))
    assert [each["resource"] for each in logs] == ["apples", "bananas"]
    assert {each["reason"] for each in logs} == {"no ACL allows it"}
    assert audited == [refusal(), refusal("bananas")]


def test_names_without_end_do_not_fill_the_log() -> None:
    refused = Refused()
    with capture_logs() as logs:
        for number in range(LINES + 10):
            refused.take(refusal(f"t{number}"))
    assert len(logs) == LINES


def test_an_audit_record_says_who_what_and_why() -> None:
    event = json.loads(refusal_event(refusal(), "gateway-1", 7))
    assert (event["auditType"], event["auditStatus"], event["topic"], event["key"]) == (
        "AUTHORIZATION",
        "FAILURE",
        "apples",
        "User:bob",
    )
    assert event["stacktrace"] == ("User:bob from host 10.0.0.1 may not write topic 'apples', because no ACL allows it")
    assert json.loads(refusal_event(refusal(enforced=False), "gateway-1", 7))["auditStatus"] == "SUCCESS"
