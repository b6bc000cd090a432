"""`POST /consumers/active/audit`: a backend that reads for itself reports what became of its records."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.authentication import caller_of
from services.sidecar.api.contract import CONTRACT
from services.sidecar.api.produce_requests import header_list
from services.sidecar.api.requests import checked_body
from services.sidecar.api.status import json_response
from services.sidecar.auditing.active import TYPE, ActiveAudit
from services.sidecar.auditing.events import MAX_ID_CHARACTERS, AuditRecord, RecordIds, audit_record, ids_in
from services.sidecar.auditing.text import AuditText
from services.sidecar.faults import Fault, FaultKind

NO_REASON = "not processed; the backend does not say why"


class ActiveAuditEndpoints:
    """Takes results of records in the form of the original's backends."""

    def __init__(self, audit: ActiveAudit, text: AuditText, *, max_request_bytes: int, room_seconds: float) -> None:
        self._audit = audit
        self._text = text
        self._max_request_bytes = max_request_bytes
        self._room_seconds = room_seconds

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.audit_records)

    async def audit_records(self, request: Request) -> Response:
        results: list[Mapping[str, Any]] = await checked_body(request, self._max_request_bytes)
        caller_of(request).check_reads({str(one["record"]["topic"]) for one in results})
        if not self._audit.is_wanted:
            raise Fault(
                FaultKind.CONSUMER_ACTIVE_AUDIT_ERROR,
                f"nothing is audited of {TYPE.value}: set audit_target (and audit_types)",
            )
        records = [_record(one) for one in results]
        if not (await self._audit.room(self._room_seconds) and self._audit.said(records)):
            why = await self._audit.fault() or "the audit trail is full (audit_max_queued_records, _bytes)"
            raise Fault(FaultKind.AUDIT_FULL, f"{why}; send again later")
        return json_response([self._text.shown(one) for one in records])


def _record(result: Mapping[str, Any]) -> AuditRecord:
    record = result["record"]
    found = ids_in(header_list(record.get("headers") or {}))
    return audit_record(
        TYPE,
        record["topic"],
        record.get("partition"),
        record.get("offset"),
        key=result.get("key") if record.get("key") is None else record["key"],
        ids=RecordIds(
            found.correlation or _id(result.get("correlationId")),
            found.traceability or _id(result.get("traceabilityId")),
            found.trace,
        ),
        failure=None if result["processed"] else result.get("stacktrace") or NO_REASON,
    )


def _id(given: str | None) -> str | None:
    return given[:MAX_ID_CHARACTERS] if given else None
