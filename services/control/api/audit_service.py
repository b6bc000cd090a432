"""AuditService: audit events of records, from the audit topics and from the table that a pipeline fills from them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from mesh.rpc import audit, audit_grpc
from services.control.api import pages
from services.control.decisions.audit.tails import AuditTails
from services.control.domain.audit.queries import AuditQuery, audit_query, freshness, refusal_query
from services.control.domain.errors import InvalidField
from services.control.store.database import Database
from services.control.store.journal import Journal
from services.control.store.record_audits import Place, RecordAuditTable


class AuditService(audit_grpc.AuditServiceServicer):
    """See AuditService in audit.proto."""

    def __init__(self, journal: Journal, database: Database, topics: Sequence[str]) -> None:
        self._journal = journal
        self._tails = AuditTails(journal, topics)
        self._table = RecordAuditTable(database)

    async def Tail(self, request: audit.TailAuditRequest, context: Any) -> AsyncIterator[audit.TailAuditResponse]:
        self._journal.require_loaded()
        if request.limit < 0:
            raise InvalidField("limit", f"{request.limit} is no number of events; 0 is for all")
        async with contextlib.aclosing(self._tails.follow(request)) as news:
            async for each in news:
                yield each

    async def Query(self, request: audit.QueryAuditRequest, context: Any) -> audit.QueryAuditResponse:
        """From PostgreSQL alone: it needs neither the log nor the lead."""
        query = audit_query(request, datetime.now(UTC))
        events, token, how_far = await self._page("audit of records", request, query)
        return audit.QueryAuditResponse(events=events, next_page_token=token, freshness=how_far)

    async def ListRefusals(self, request: audit.ListRefusalsRequest, context: Any) -> audit.ListRefusalsResponse:
        query = refusal_query(request, datetime.now(UTC))
        events, token, how_far = await self._page("refusals", request, query)
        return audit.ListRefusalsResponse(refusals=map(_refusal, events), next_page_token=token, freshness=how_far)

    async def _page(
        self, what: str, request: audit.QueryAuditRequest | audit.ListRefusalsRequest, query: AuditQuery
    ) -> tuple[Sequence[audit.RecordAudit], str, audit.AuditFreshness]:
        size = pages.page_size(request.page_size)
        listing = pages.listing_of(what, request)
        after = pages.place_of(listing, request.page_token)
        found = await self._table.find(query, _place(after), size + 1)
        token = pages.token(listing, _said(found.places[size - 1])) if len(found.events) > size else ""
        return found.events[:size], token, freshness(found.partitions, found.sources, found.now)


def _refusal(event: audit.RecordAudit) -> audit.Refusal:
    """An audit record of a gateway, by the words of its content (`gateway-audit.md`)."""
    return audit.Refusal(
        time=event.time,
        principal=event.key,
        audit_type=event.audit_type,
        topic=event.topic,
        partition=event.partition,
        enforced=event.audit_status == "FAILURE",
        reason=event.stacktrace,
        gateway=event.service_id,
    )


def _said(place: Place) -> str:
    time, event_id = place
    return f"{time.isoformat()} {event_id}"


def _place(said: int | str | None) -> Place | None:
    if said is None:
        return None
    try:
        time, event_id = str(said).split(" ")
        return datetime.fromisoformat(time), UUID(event_id)
    except ValueError:
        raise InvalidField("page_token", "not a token of this list; take next_page_token of the page before") from None
