"""Audit records of batches: one for each record, in the form that the sidecar writes. Never a payload.

A pure function of plain data, made to run in another process: it decompresses batches, and each record takes some 10
us. The id of a stored record's event is made of the record's place. So a client that writes the batch again because it
had no answer, and a second gateway that hears of the batch, report the same event.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid4, uuid5

from mesh.compression import Allowance
from services.gateway.requests.auditing.clients import AuditedBatch
from services.gateway.wire.batches import batches
from services.gateway.wire.primitives import WireError
from services.gateway.wire.record_marks import RecordMarks, read_marks

MOST_DECOMPRESSED = 100 * 1024 * 1024
"""Bytes that may come out of the batches of one request."""
MOST_RECORDS = 20_000
"""Audit records of one request; records beyond this number are not audited, but counted as lost."""
MOST_KEY_CHARACTERS = 4_096
MOST_ID_CHARACTERS = 256
MOST_FAILURE_CHARACTERS = 16_384
"""The longest key, id and failure that an audit record keeps; the sidecar has the same limits."""

_TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class AuditEvents(NamedTuple):
    """Keys and values as they are written."""

    written: list[tuple[bytes | None, bytes]]
    lost: int
    """Records that could not be read, or were too many."""


def audit_events(found: list[AuditedBatch], service_id: str, now_ms: int) -> AuditEvents:
    """One audit record for each record of these batches."""
    allowance = Allowance(MOST_DECOMPRESSED)
    written: list[tuple[bytes | None, bytes]] = []
    lost = 0
    for batch in found:
        before = len(written)
        try:
            for marks in _marks(batch, allowance):
                if len(written) == MOST_RECORDS:
                    break
                written.append(_event(batch, marks, service_id, now_ms))
        except WireError:
            pass  # its broker has refused it, or the client of an older gateway sends what nobody can open
        lost += max(0, batch.records - (len(written) - before))
    return AuditEvents(written, lost)


def _marks(batch: AuditedBatch, allowance: Allowance) -> Iterator[RecordMarks]:
    for header in batches(batch.data, 0, len(batch.data)):
        yield from read_marks(batch.data, header, allowance)


def _event(batch: AuditedBatch, marks: RecordMarks, service_id: str, now_ms: int) -> tuple[bytes | None, bytes]:
    offset = None if batch.failure or batch.base_offset < 0 else batch.base_offset + marks.offset
    correlation = traceability = trace = None
    for name, value in marks.headers:
        match name.lower():
            case b"x-correlation-id":
                correlation = correlation or _text(value, MOST_ID_CHARACTERS)
            case b"x-traceability-id":
                traceability = traceability or _text(value, MOST_ID_CHARACTERS)
            case b"traceparent" if trace is None:
                parent = _TRACE_PARENT.match(_text(value, MOST_ID_CHARACTERS) or "")
                trace = parent[1] if parent else None
    place = f"{batch.cluster}/{batch.topic}/{batch.partition}/{offset}/{marks.timestamp}"
    members = {
        "id": str(uuid4() if offset is None else uuid5(NAMESPACE_URL, place)),
        "serviceId": service_id,
        "auditType": "PRODUCER",
        "topic": batch.topic,
        "partition": batch.partition,
        "offset": offset,
        "correlationId": correlation,
        "traceabilityId": traceability,
        "key": _text(marks.key, MOST_KEY_CHARACTERS),
        "auditStatus": "FAILURE" if batch.failure else "SUCCESS",
        "stacktrace": batch.failure[:MOST_FAILURE_CHARACTERS] or None,
        "timestamp": now_ms,
        "traceId": trace,
    }
    shown = {name: value for name, value in members.items() if value is not None}
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return (correlation.encode() if correlation else None), text.encode()


def _text(value: bytes | None, most: int) -> str | None:
    """Bytes that are no UTF-8 are replaced."""
    return None if value is None else value[: 4 * most].decode(errors="replace")[:most]
