"""Audit events of records as sidecars write them: this module reads them from JSON, and filters them for a caller."""

from __future__ import annotations

import json
from typing import Any

from mesh.rpc import audit

_TEXTS = {
    "id": "id",
    "serviceId": "service_id",
    "auditType": "audit_type",
    "topic": "topic",
    "correlationId": "correlation_id",
    "traceabilityId": "traceability_id",
    "traceId": "trace_id",
    "key": "key",
    "auditStatus": "audit_status",
    "stacktrace": "stacktrace",
}
"""Name in the event -> name in the contract."""
_FILTERS = (
    "topic", "correlation_id", "traceability_id", "trace_id", "key", "service_id", "audit_type", "audit_status",
)  # fmt: skip
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last year of a Timestamp."""


def record_audit(value: bytes | None, cluster: str) -> audit.RecordAudit | None:
    """The event in these bytes; None if they hold no event."""
    try:
        given: Any = json.loads(value or b"")
        if not isinstance(given, dict) or "auditStatus" not in given:
            return None
        event = audit.RecordAudit(
            partition=_number(given, "partition"), offset=_number(given, "offset"), cluster_name=cluster
        )
        for name, ours in _TEXTS.items():
            if (text := given.get(name)) is not None:
                setattr(event, ours, _text(text))
        event.time.FromMilliseconds(min(max(_number(given, "timestamp"), 0), _LAST_MS))
    except (ValueError, TypeError, RecursionError):
        return None
    return event


def is_asked_for(event: audit.RecordAudit, request: audit.TailAuditRequest) -> bool:
    """Whether the event meets all conditions of the request."""
    if request.HasField("start_time") and event.time.ToNanoseconds() < request.start_time.ToNanoseconds():
        return False
    return all(getattr(request, name) in ("", getattr(event, name)) for name in _FILTERS)


def _number(given: dict[str, Any], name: str) -> int:
    value = given.get(name)
    return value if isinstance(value, int) else -1


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
