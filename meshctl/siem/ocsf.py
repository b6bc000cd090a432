"""Audit events as events of the Open Cybersecurity Schema Framework (OCSF), version 1.7.0. No I/O.

Classes, activities and ids are those of https://schema.ocsf.io/1.7.0. A test checks each form against that schema.

1. A call to control is an API Activity (6003). The verb of the call gives its activity.
2. A request that ACLs refuse, or would refuse, is an API Activity with the activity Other.
3. A record that was written is a Datastore Activity (6005) with the activity Write; so is one that a rule refused.
4. A record that was consumed is a Datastore Activity with the activity Read.

OCSF has no class for message queues. So a topic is a `databucket` of the type "Kafka topic". Facts for which OCSF has
no attribute are in `unmapped`, by the names of the audit event.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote

from mesh.rpc import admin, audit

VERSION: Final = "1.7.0"
CATEGORY: Final = 6
CATEGORY_NAME: Final = "Application Activity"
PRODUCT: Final = "Kafka Mesh"
OTHER_TYPE: Final = 99
"""`databucket.type_id`: Other; its name is `databucket.type`."""
DATABUCKET: Final = 2
"""`type_id` of a Datastore Activity."""

Event = dict[str, Any]


class _Class(IntEnum):
    API_ACTIVITY = 6003
    DATASTORE_ACTIVITY = 6005


_CLASS_NAMES = {_Class.API_ACTIVITY: "API Activity", _Class.DATASTORE_ACTIVITY: "Datastore Activity"}


@dataclass(frozen=True, slots=True)
class _Activity:
    id: int
    name: str


_CREATE, _READ, _UPDATE, _DELETE = (
    _Activity(number, name) for number, name in enumerate(("Create", "Read", "Update", "Delete"), start=1)
)
_OTHER = _Activity(99, "Other")
_READ_RECORD, _WRITE_RECORD = _Activity(1, "Read"), _Activity(5, "Write")
_BY_VERB: Mapping[str, _Activity] = {
    **dict.fromkeys(("Create", "Register", "Add", "Schedule", "Grant", "Start", "Declare", "Place"), _CREATE),
    **dict.fromkeys(
        ("Get", "List", "Query", "Describe", "Explain", "Watch", "Tail", "Top", "Diff", "Verify", "Test", "Dry"), _READ
    ),
    **dict.fromkeys(
        ("Set", "Update", "Change", "Replace", "Reorder", "Rewind", "Revert", "Restore", "Pause", "Resume", "Freeze",
         "Thaw"),
        _UPDATE,
    ),
    **dict.fromkeys(("Delete", "Remove", "Revoke", "Withdraw", "Cancel"), _DELETE),
}  # fmt: skip
"""The activity of a call by the first word of its name; any other word is Other."""
_BY_TYPE = {
    "PRODUCER": _WRITE_RECORD,
    "STREAMING_PRODUCER": _WRITE_RECORD,
    "VALIDATION": _WRITE_RECORD,
    "REACTIVE_CONSUMER": _READ_RECORD,
    "ACTIVE_CONSUMER": _READ_RECORD,
    "STREAMING_CONSUMER": _READ_RECORD,
}

_INFORMATIONAL, _LOW, _MEDIUM = (1, "Informational"), (2, "Low"), (3, "Medium")
_SUCCESS, _FAILURE = (1, "Success"), (2, "Failure")
_REFUSED_RIGHTS = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
"""gRPC codes of a caller without the right."""
_PEER = re.compile(r"ipv[46]:\[?([^\]]+)\]?:(\d+)")
_FIRST_WORD = re.compile(r"[A-Z][a-z]*")


def of_call(event: admin.AuditEvent) -> Event:
    """A call to control."""
    service, _, operation = event.method.rpartition("/")
    word = _FIRST_WORD.match(operation)
    activity = _BY_VERB.get(word[0] if word else "", _OTHER)
    is_done = event.code == "OK"
    severity = _INFORMATIONAL if is_done else _MEDIUM if event.code in _REFUSED_RIGHTS else _LOW
    made = _event(_Class.API_ACTIVITY, activity, event.time.ToMilliseconds(), severity, done=is_done)
    made["metadata"] |= {"uid": event.audit_id, "sequence": event.sequence, "log_name": "call", "event_code": operation}
    made |= {
        "actor": {"user": {"name": event.actor or "unknown"}},
        "api": {"operation": operation or event.method, "service": {"name": service.lstrip("/") or PRODUCT}},
        "src_endpoint": _endpoint(event.peer),
        "status_code": event.code,
        "duration": round(event.milliseconds),
        "message": f"{event.actor or 'unknown'} called {operation}"
        + (f" about {event.resource}" if event.resource else ""),
    }
    if event.request_id:
        made["api"]["request"] = {"uid": event.request_id}
    if event.resource:
        collection = event.resource.partition("/")[0]
        made["resources"] = [{"name": event.resource, "type": collection}]
    if event.trace_id:  # a Datastore Activity has no such profile
        made["metadata"]["profiles"] = ["trace"]
        made["trace"] = {"uid": event.trace_id}
    if event.problem:
        made["status_detail"] = event.problem
    return _with_unmapped(
        made,
        reason=event.reason,
        on_behalf_of=event.on_behalf_of,
        revision=event.revision or None,
        validate_only=event.validate_only,
    )


def of_record(event: audit.RecordAudit) -> Event:
    """The outcome of a record, or a request of a client that ACLs refuse."""
    made = _of_refusal(event) if event.audit_type == "AUTHORIZATION" else _of_record(event)
    made["metadata"] |= {"uid": event.id, "log_name": "record", "event_code": event.audit_type}
    if event.correlation_id:
        made["metadata"]["correlation_uid"] = event.correlation_id
    made["src_endpoint"] = {"svc_name": event.service_id or "unknown"}
    if event.cluster_name:
        made["dst_endpoint"] = {"svc_name": event.cluster_name}
    if event.stacktrace:
        made["status_detail"] = event.stacktrace
    return _with_unmapped(
        made, traceability_id=event.traceability_id, trace_id=event.trace_id, audit_type=event.audit_type
    )


def _of_refusal(event: audit.RecordAudit) -> Event:
    """SUCCESS is a request that passed because ACLs only observe."""
    passed = event.audit_status == "SUCCESS"
    severity = _LOW if passed else _MEDIUM
    made = _event(_Class.API_ACTIVITY, _OTHER, event.time.ToMilliseconds(), severity, done=passed)
    decision = "denied, and passed because ACLs only observe" if passed else "denied"
    made |= {
        "actor": {"user": {"name": event.key or "unknown"}, "authorizations": [{"decision": decision}]},
        "api": {"operation": "Kafka request", "service": {"name": event.service_id or PRODUCT}},
        "message": event.stacktrace or f"ACLs refuse a request of {event.key or 'unknown'}",
    }
    if event.topic:
        made["resources"] = [{"name": event.topic, "type": "topics"}]
    return made


def _of_record(event: audit.RecordAudit) -> Event:
    is_done = event.audit_status == "SUCCESS"
    activity = _BY_TYPE.get(event.audit_type, _OTHER)
    severity = _INFORMATIONAL if is_done else _LOW
    made = _event(_Class.DATASTORE_ACTIVITY, activity, event.time.ToMilliseconds(), severity, done=is_done)
    is_refused = event.audit_type in ("VALIDATION", "PROTECTION")
    # the key of a refused batch is its client's principal; any other key is that of the record
    actor = {"user": {"name": event.key}} if is_refused and event.key else {"app_name": event.service_id or "unknown"}
    place = f"{event.topic}-{event.partition}" if event.partition >= 0 else event.topic
    made |= {
        "actor": actor,
        "type_id": DATABUCKET,
        "databucket": {"name": event.topic or "unknown", "type_id": OTHER_TYPE, "type": "Kafka topic"},
        "message": f"{event.audit_type} {event.audit_status}: {place}"
        + (f" offset {event.offset}" if event.offset >= 0 else ""),
    }
    return _with_unmapped(
        made,
        partition=event.partition if event.partition >= 0 else None,
        offset=event.offset if event.offset >= 0 else None,
        key="" if is_refused else event.key,
    )


def _event(of: _Class, activity: _Activity, time_ms: int, severity: tuple[int, str], *, done: bool) -> Event:
    status_id, status = _SUCCESS if done else _FAILURE
    severity_id, severity_name = severity
    return {
        "category_uid": CATEGORY,
        "category_name": CATEGORY_NAME,
        "class_uid": int(of),
        "class_name": _CLASS_NAMES[of],
        "activity_id": activity.id,
        "activity_name": activity.name,
        "type_uid": int(of) * 100 + activity.id,
        "type_name": f"{_CLASS_NAMES[of]}: {activity.name}",
        "time": time_ms,
        "severity_id": severity_id,
        "severity": severity_name,
        "status_id": status_id,
        "status": status,
        "metadata": {"version": VERSION, "product": {"name": PRODUCT, "vendor_name": PRODUCT}},
    }


def _with_unmapped(made: Event, **facts: Any) -> Event:
    """Adds the facts that are known: neither empty nor absent."""
    known = {name: value for name, value in facts.items() if not (value is None or value is False or value == "")}
    if known:
        made["unmapped"] = made.get("unmapped", {}) | known
    return made


def _endpoint(peer: str) -> dict[str, Any]:
    """gRPC's peer: `ipv4:10.0.0.1:5000`, `ipv6:%5B::1%5D:5000`, `unix:`."""
    if found := _PEER.fullmatch(unquote(peer)):
        address, port = found[1], int(found[2])
        try:
            return {"ip": str(ip_address(address)), "port": port}
        except ValueError:
            return {"name": address, "port": port}
    return {"name": peer or "unknown"}
