"""AuditService: what became of records, as the sidecars' audit topics tell it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from mesh.rpc import audit, audit_grpc
from services.control.decisions.audit_tails import AuditTails
from services.control.domain.errors import InvalidField
from services.control.store.journal import Journal


class AuditService(audit_grpc.AuditServiceServicer):
    """See AuditService in audit.proto."""

    def __init__(self, journal: Journal, tails: AuditTails) -> None:
        self._journal = journal
        self._tails = tails

    async def Tail(self, request: audit.TailAuditRequest, context: Any) -> AsyncIterator[audit.TailAuditResponse]:
        self._journal.require_loaded()
        if request.limit < 0:
            raise InvalidField("limit", f"{request.limit} is no number of events; 0 is for all")
        async with contextlib.aclosing(self._tails.follow(request)) as news:
            async for each in news:
                yield each
