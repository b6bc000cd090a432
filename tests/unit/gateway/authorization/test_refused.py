"""Refusals are counted, told in the log and audited, within bounds."""

from __future__ import annotations

import json

from structlog.testing import capture_logs

from mesh.acls import Decision, Operation, ResourceType
from mesh.validation import Breach, Fault, Rule
from services.gateway import metrics
from services.gateway.authorization.refusals import Refusal
from services.gateway.downstream.refused import LINES, TOPICS_COUNTED, Refused
from services.gateway.requests.auditing.invalid import InvalidBatch
from services.gateway.requests.auditing.refusals import Refused as AnyRefused
from services.gateway.requests.auditing.refusals import refusal_event
from services.gateway.requests.auditing.withheld import Withheld


def refusal(name: str = "apples", *, enforced: bool = True) -> Refusal:
    return Refusal(
        "User:bob", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, name, Decision(False), api_key=0, enforced=enforced
    )


def test_a_refusal_has_one_line_and_one_audit_record_a_minute() -> None:
    audited: list[AnyRefused] = []
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


def test_batches_that_break_a_rule_are_told_too_and_topics_without_end_count_together() -> None:
    rule = Rule("small", "", is_prefix=True, max_message_bytes=1)
    audited: list[AnyRefused] = []
    refused = Refused()
    refused.audit = audited.append
    batches = [
        InvalidBatch("User:bob", "10.0.0.1", "shop", f"t{number}", 3, 2, Breach(rule, Fault.SIZE, "it is too large"))
        for number in range(TOPICS_COUNTED + 5)
    ]
    with capture_logs() as logs:
        for each in (batches[0], *batches):
            refused.take_batch(each)
    assert len(logs) == len(audited) == len(batches)
    assert (logs[0]["event"], logs[0]["reason"], logs[0]["topic"]) == ("records are refused", "it is too large", "t0")
    assert metrics.refused_records.labels("t0", "small")._value.get() == 4
    assert metrics.refused_records.labels("other", "small")._value.get() == 10
    event = json.loads(refusal_event(batches[0], "gateway-1", 7))
    assert (event["auditType"], event["topic"], event["partition"]) == ("VALIDATION", "t0", 3)
    assert event["stacktrace"].endswith("may not write such a batch, because it is too large")


def test_records_that_are_withheld_are_told_counted_and_audited() -> None:
    audited: list[AnyRefused] = []
    refused = Refused()
    refused.audit = audited.append
    told = Withheld("User:bob", "10.0.0.1", "shop", "apples", 3, "pii", "no reader", is_write=False, for_now=False)
    stored = Withheld("User:bob", "10.0.0.1", "shop", "apples", 3, "pii", "no JSON", is_write=True, for_now=False)
    with capture_logs() as logs:
        for _ in range(3):
            refused.take_withheld(told)
        refused.take_withheld(stored)
    assert [each["event"] for each in logs] == [
        "records are withheld from a client",
        "records can't be protected, and are not stored",
    ]
    assert audited == [told, stored]
    event = json.loads(refusal_event(told, "gateway-1", 7))
    assert (event["auditType"], event["auditStatus"], event["topic"], event["partition"], event["key"]) == (
        "PROTECTION",
        "FAILURE",
        "apples",
        3,
        "User:bob",
    )
    assert "can't read records of the topic, because no reader (rule 'pii' of the mesh)" in event["stacktrace"]
