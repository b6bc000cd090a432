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
from services.control.domain.audit.queries import audit_query, freshness
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
        size = pages.page_size(request.page_size)
        listing = pages.listing_of("audit of records", request)
        after = pages.place_of(listing, request.page_token)
        found = await self._table.find(audit_query(request, datetime.now(UTC)), _place(after), size + 1)
        return audit.QueryAuditResponse(
            events=found.events[:size],
            next_page_token=pages.token(listing, _said(found.places[size - 1])) if len(found.events) > size else "",
            freshness=freshness(found.partitions, found.sources, found.now),
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
