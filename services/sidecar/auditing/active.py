"""Audit of what a backend does with its own consumer instances.

The sidecar audits a record when it gives the record to the backend. For a commit it writes one more audit record for
each partition, about the last record that the commit covers. Only the backend knows what became of a record, and may
report that (`POST /consumers/active/audit`).
"""

from collections.abc import Awaitable, Sequence

from services.sidecar.auditing.events import AuditRecord, AuditType, committed, given, not_committed
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.faults import Fault
from services.sidecar.records import Commit, Consumed, Consumption

TYPE = AuditType.ACTIVE_CONSUMER


class ActiveAudit:
    """The audit of all instances."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail
        self._wanted = trail.wants(TYPE)

    async def room(self, timeout: float) -> bool:
        """Waits `timeout` seconds at most until there is room to audit the next records; whether there is room."""
        return not self._wanted or await self._trail.room(timeout)

    def given(self, records: Sequence[Consumed]) -> None:
        """The backend has these."""
        if records and self._wanted:
            self._trail.record(given(records))

    async def commit(
        self, asked: Sequence[Consumption] | None, committing: Awaitable[list[Commit]], *, known: bool = True
    ) -> list[Commit]:
        """Audits a commit of these records, or (None) of all given records.

        `known`: whether Kafka will have confirmed the commit.
        """
        try:
            commits = await committing
        except Fault as fault:
            if asked and self._wanted:
                places = [(one.partition, one.offset) for one in asked]
                self._trail.record(not_committed(places, f"{fault.kind.value} {fault.description}"))
            raise
        if known and self._wanted:
            self._trail.record(committed(commits))
        return commits

    def said(self, records: Sequence[AuditRecord]) -> bool:
        """Records the backend's report on its records; whether the trail took it."""
        return self._trail.record(records)

    @property
    def is_wanted(self) -> bool:
        return self._wanted

    async def fault(self) -> str | None:
        """Why there is no room."""
        return await self._trail.fault()
