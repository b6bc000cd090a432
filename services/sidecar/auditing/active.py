"""Audit of what a backend does with its own consumer instances.

A record that it was given is audited then; a commit is one more, for each partition, about the last record that it
covers. What the backend made of a record only it knows: it may say so (`POST /consumers/active/audit`).
"""

from collections.abc import Awaitable, Sequence

from services.sidecar.auditing.events import AuditRecord, AuditType, committed, given, not_committed
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.consuming.records import Commit, Consumed, Consumption
from services.sidecar.faults import Fault

TYPE = AuditType.ACTIVE_CONSUMER


class ActiveAudit:
    """Of all instances."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail
        self._wanted = trail.wants(TYPE)

    async def room(self, timeout: float) -> bool:
        """Waits until what is read next can be audited, `timeout` seconds at most; whether it can."""
        return not self._wanted or await self._trail.room(timeout)

    def given(self, records: Sequence[Consumed]) -> None:
        """The backend has these."""
        if records and self._wanted:
            self._trail.record(given(records))

    async def commit(
        self, asked: Sequence[Consumption] | None, committing: Awaitable[list[Commit]], *, known: bool = True
    ) -> list[Commit]:
        """Of these records, or (None) of all that was given. `known`: whether Kafka will have said so."""
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
        """What the backend says of its records; whether it is written."""
        return self._trail.record(records)

    @property
    def is_wanted(self) -> bool:
        return self._wanted

    async def fault(self) -> str | None:
        """Why there is no room."""
        return await self._trail.fault()
