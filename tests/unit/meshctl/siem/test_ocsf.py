"""Audit events in OCSF: each form is valid by the schema of that version, and says what the audit event says."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from mesh.rpc import admin, audit
from meshctl.siem.ocsf import VERSION, of_call, of_record

NOON_MS = 1_795_953_600_000
RECORD_TYPES = (
    "PRODUCER", "REACTIVE_CONSUMER", "ACTIVE_CONSUMER", "STREAMING_CONSUMER", "STREAMING_PRODUCER", "VALIDATION",
    "AUTHORIZATION", "SOME_LATER_ONE",
)  # fmt: skip


@cache
def _schemas() -> OcsfJsonSchemaEmbedded:
    return OcsfJsonSchemaEmbedded(get_ocsf_schema(version=VERSION))


@cache
def _validator(class_uid: int, *profiles: str) -> Draft202012Validator:
    name = _schemas().lookup_class_name_from_uid(class_uid=class_uid)
    return Draft202012Validator(_schemas().get_class_schema(class_name=name, profiles=list(profiles)))


def problems(event: dict[str, Any]) -> list[str]:
    found = _validator(event["class_uid"], *event["metadata"].get("profiles", ())).iter_errors(event)
    return [f"{'/'.join(map(str, each.path))}: {each.message}"[:300] for each in found]


def call(method: str = "/mesh.v1.RuleService/SetRule", **fields: Any) -> admin.AuditEvent:
    usual: dict[str, Any] = {
        "sequence": 7, "audit_id": "a-1", "actor": "ada@till", "peer": "ipv4:10.1.2.3:5000", "code": "OK",
        "milliseconds": 12.4,
    }  # fmt: skip
    event = admin.AuditEvent(method=method, **usual | fields)
    event.time.FromMilliseconds(NOON_MS)
    return event


def record(audit_type: str = "PRODUCER", **fields: Any) -> audit.RecordAudit:
    usual: dict[str, Any] = {
        "id": "r-1", "service_id": "shop-1", "topic": "orders", "partition": 2, "offset": 40, "key": "bob",
        "audit_status": "SUCCESS", "cluster_name": "c1",
    }  # fmt: skip
    event = audit.RecordAudit(audit_type=audit_type, **usual | fields)
    event.time.FromMilliseconds(NOON_MS)
    return event


def test_the_schema_refuses_what_is_not_ocsf() -> None:
    event = of_call(call())
    assert problems(event) == []
    without = {name: value for name, value in event.items() if name != "actor"}
    assert problems(without) == [": 'actor' is a required property"]
    assert problems(event | {"activity_id": 55})
    assert problems(event | {"colour": "red"})


@pytest.mark.parametrize(
    ("method", "activity"),
    [
        ("/mesh.v1.ClusterService/RegisterCluster", 1),
        ("/mesh.v1.AuditService/Query", 2),
        ("/mesh.v1.RuleService/SetRule", 3),
        ("/mesh.v1.RuleService/DeleteRule", 4),
        ("/mesh.v1.TransactionService/AbortTransaction", 99),
        ("strange", 99),
    ],
)
def test_a_call_is_an_api_activity_by_its_verb(method: str, activity: int) -> None:
    event = of_call(
        call(method, resource="rules/orders", request_id="q-1", trace_id="0af7651916cd43dd8448eb211c80319c")
    )
    assert problems(event) == []
    assert (event["class_uid"], event["activity_id"], event["type_uid"]) == (6003, activity, 600_300 + activity)
    assert event["time"] == NOON_MS
    assert event["actor"]["user"]["name"] == "ada@till"
    assert event["src_endpoint"] == {"ip": "10.1.2.3", "port": 5000}
    assert event["resources"] == [{"name": "rules/orders", "type": "rules"}]
    assert event["metadata"]["sequence"] == 7
    assert event["trace"]["uid"] == "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("code", "status", "severity"),
    [("OK", "Success", 1), ("INVALID_ARGUMENT", "Failure", 2), ("PERMISSION_DENIED", "Failure", 3)],
)
def test_a_call_without_the_right_is_more_severe_than_a_wrong_one(code: str, status: str, severity: int) -> None:
    problem = "" if code == "OK" else "bob may not"
    event = of_call(call(code=code, problem=problem, reason="ticket 4", revision=12, on_behalf_of="eve"))
    assert problems(event) == []
    assert (event["status"], event["status_code"], event["severity_id"]) == (status, code, severity)
    assert event.get("status_detail", "") == problem
    assert event["unmapped"] == {"reason": "ticket 4", "on_behalf_of": "eve", "revision": 12}


@pytest.mark.parametrize(
    ("peer", "endpoint"),
    [
        ("ipv6:%5B::1%5D:5000", {"ip": "::1", "port": 5000}),
        ("unix:", {"name": "unix:"}),
        ("", {"name": "unknown"}),
        ("ipv4:strange:1", {"name": "strange", "port": 1}),
    ],
)
def test_a_caller_has_an_endpoint_wherever_it_called_from(peer: str, endpoint: dict[str, Any]) -> None:
    event = of_call(call(peer=peer))
    assert problems(event) == []
    assert event["src_endpoint"] == endpoint


@pytest.mark.parametrize("audit_type", RECORD_TYPES)
@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE"])
@pytest.mark.parametrize("fields", [{}, {"topic": "", "partition": -1, "offset": -1, "key": "", "service_id": ""}])
def test_each_kind_of_audit_record_is_valid(audit_type: str, status: str, fields: dict[str, Any]) -> None:
    event = of_record(record(audit_type, audit_status=status, stacktrace="so it is", correlation_id="5Cl", **fields))
    assert problems(event) == []
    assert event["metadata"]["correlation_uid"] == "5Cl"
    assert event["status_id"] == (1 if status == "SUCCESS" else 2)
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]


def test_a_record_has_its_place_and_its_service() -> None:
    event = of_record(record("REACTIVE_CONSUMER", traceability_id="t-1", trace_id="0af7"))
    assert problems(event) == []
    assert (event["class_uid"], event["activity_name"]) == (6005, "Read")
    assert event["databucket"]["name"] == "orders"
    assert event["actor"] == {"app_name": "shop-1"}
    assert event["dst_endpoint"] == {"svc_name": "c1"}
    assert event["unmapped"] == {
        "partition": 2, "offset": 40, "key": "bob", "traceability_id": "t-1", "trace_id": "0af7",
        "audit_type": "REACTIVE_CONSUMER",
    }  # fmt: skip
    first = of_record(record(partition=0, offset=0))["unmapped"]
    assert (first["partition"], first["offset"]) == (0, 0)


def test_a_refused_request_has_the_principal_and_the_decision() -> None:
    refused = record("AUTHORIZATION", key="User:eve", audit_status="FAILURE", stacktrace="User:eve may not Write")
    event = of_record(refused)
    assert event["actor"]["user"]["name"] == "User:eve"
    assert event["actor"]["authorizations"] == [{"decision": "denied"}]
    assert (event["status"], event["severity"]) == ("Failure", "Medium")
    assert event["status_detail"] == "User:eve may not Write"
    observed = of_record(record("AUTHORIZATION", key="User:eve", audit_status="SUCCESS"))
    assert "only observe" in observed["actor"]["authorizations"][0]["decision"]
    invalid = of_record(record("VALIDATION", key="User:eve", audit_status="FAILURE"))
    assert invalid["actor"]["user"]["name"] == "User:eve"
    assert "key" not in invalid["unmapped"]
