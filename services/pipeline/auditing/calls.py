"""Converts control's own audit events (AuditEvent of admin.proto) to the JSON of a sidecar's events.

This module runs in Spark's Python workers, so it imports little else.
"""

from __future__ import annotations

import orjson
from google.protobuf.message import DecodeError

from mesh.rpc import admin

CALL_TYPE, CONTROL = "CONTROL", "control"


def event_of_call(call: bytes | None) -> bytes | None:
    """Converts a call to JSON; None if the bytes are no AuditEvent."""
    if call is None:
        return None
    try:
        event = admin.AuditEvent.FromString(call)
        timestamp = event.time.ToMilliseconds()
    except (DecodeError, ValueError):  # the time may be outside of any calendar
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
