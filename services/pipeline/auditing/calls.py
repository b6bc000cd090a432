"""Control's own audit events (AuditEvent of admin.proto) as a sidecar would write them. Runs in Spark's workers: they
import this file, and little else.
"""

from __future__ import annotations

import orjson
from google.protobuf.message import DecodeError

from mesh.rpc import admin

CALL_TYPE, CONTROL = "CONTROL", "control"


def event_of_call(call: bytes | None) -> bytes | None:
    """A call as JSON; None for what is none."""
    if call is None:
        return None
    try:
        event = admin.AuditEvent.FromString(call)
        timestamp = event.time.ToMilliseconds()
    except (DecodeError, ValueError):  # its time may be one that no calendar has
        return None
    is_well = event.code == "OK"
    shown = {
        "id": event.audit_id,
        "serviceId": CONTROL,
        "auditType": CALL_TYPE,
        "auditStatus": "SUCCESS" if is_well else "FAILURE",
        "correlationId": event.request_id,
        "traceId": event.trace_id,
        "key": event.resource,
        "stacktrace": "" if is_well else f"{event.code} {event.problem}",
        "timestamp": timestamp,
        "actor": event.actor,
        "method": event.method,
    }
    return orjson.dumps({name: value for name, value in shown.items() if value != ""})
