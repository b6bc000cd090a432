"""The progress of a job, kept by Kafka: offsets of the job's group, committed with the records that the job writes.

1. Each commit carries metadata: the job's id and its counts. So a job resumes only from its own commits, though its
   group was used before. The counts outlive the process that carried out the job.
2. Records and offsets are one transaction: a process that dies leaves both or none. A process that continues the job
   fences the process before it.
3. A mesh has no such transaction if a cluster before Kafka 3.0 has some of the group and the topics, and another
   cluster has the rest. Then offsets are committed after the records are acknowledged. If the process dies in between,
   the records are written again.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from mesh.pauses import pause
from services.sidecar.auditing.events import AuditType, produced
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.consuming.partition_reader import PartitionReader, offsets_of
from services.sidecar.delivering.batch import ReplyRecord
from services.sidecar.delivering.writing import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Send, Writes, write_all
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.jobs.job import PartitionProgress, RefusedError
from services.sidecar.producing.transactional_client import (
    Elsewhere,
    GroupOffsets,
    Lost,
    NotWritten,
    TransactionalClient,
)
from services.sidecar.records import Commit, DeliveryError, Failed

_NOTE = re.compile(r"job=(?P<job>\S+) records=(?P<records>\d+) failed=(?P<failed>\d+)")

log = structlog.get_logger(__name__)


class Ledger:
    """The ledger of one job. Blocking calls go through `on_thread`, to the thread that owns the reader."""

    def __init__(
        self,
        job: str,
        reader: PartitionReader,
        transactional: dict[str, Any],
        send: Send,
        on_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        audit: AuditTrail,
        *,
        seconds: float,
    ) -> None:
        """`transactional`: properties of a transactional producer. `seconds`: the bound of one transaction."""
        self._job = job
        self._reader = reader
        self._properties = transactional
        self._send = send
        self._on_thread = on_thread
        self._audit = audit
        self._seconds = seconds
        self._client: TransactionalClient | None = None

    async def open(self, plan: Iterable[PartitionProgress]) -> list[PartitionProgress]:
        """The plan with the positions at which the job resumes. A process that carried out the job before is fenced.

        Fault when the group has members: their commits would conflict with the job's.
        """
        await self._take_over()
        plan = list(plan)
        found = await self._on_thread(lambda: self._reader.committed(one.partition for one in plan))
        places = [self._resumed(one, found.get(one.partition)) for one in plan]
        await self._on_thread(lambda: self._reader.commit(map(self._commit, places)))
        return places

    async def settle(self, writes: Collection[ReplyRecord], places: Sequence[PartitionProgress]) -> None:
        """Writes the records, and commits the places. RefusedError when the records can never be written."""
        commits = [self._commit(one) for one in places]
        if self._client is None or not await self._in_transaction(writes, commits):
            await self._one_after_the_other(writes, commits)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.interrupt()
            await self._on_thread(client.close)

    async def _take_over(self) -> None:
        await self.close()
        client = self._client = TransactionalClient(self._properties)
        try:
            await self._on_thread(lambda: client.open(self._seconds))
        except Lost as lost:
            if not lost.is_refused:
                raise Fault(FaultKind.KAFKA_UNAVAILABLE, f"No transaction can be begun: {lost}") from None
            await self._without_transactions(str(lost))

    async def _in_transaction(self, writes: Collection[ReplyRecord], commits: list[Commit]) -> bool:
        """Writes records and offsets in one transaction; False when the cluster cannot have such a transaction."""
        together = Writes(writes)
        failures = 0
        while (client := self._client) is not None:
            entries = together.entries
            consumed = GroupOffsets(offsets_of(commits), self._reader.group_metadata())
            try:
                written = await self._on_thread(lambda: client.write(entries, self._seconds, consumed=consumed))  # noqa: B023
                for entry, outcomes in zip(entries, written, strict=True):
                    self._audit.record(produced(entry.topic, entry.records, outcomes, AuditType.STREAMING_PRODUCER))
                return True
            except Elsewhere as elsewhere:
                await self._without_transactions(str(elsewhere))
            except NotWritten as refused:
                if (smaller := together.smaller(refused.outcomes)) is not None:
                    together = smaller
                    await self._take_over()  # librdkafka's next transaction would fail: the sequence numbers have a gap
                    continue
                refuse_if_final(", ".join(entry.topic for entry in entries), [refused.cause])
                log.info("a job's transaction is tried again", job=self._job, reason=str(refused))
            except Lost as lost:
                if lost.fenced:
                    raise RefusedError("another process goes on with it") from None
                log.warning("a job's producer is replaced", job=self._job, reason=str(lost))
                if lost.is_refused:
                    await self._without_transactions(str(lost))
                    continue
                await self._take_over()
                if await self._are_committed(commits):
                    return True
            failures += 1
            await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
        return False

    async def _one_after_the_other(self, writes: Collection[ReplyRecord], commits: list[Commit]) -> None:
        await write_all(self._send, writes, refuse_if_final)
        await self._on_thread(lambda: self._reader.commit(commits))

    async def _without_transactions(self, reason: str) -> None:
        log.warning(
            "a job goes on without transactions: what a crash interrupts comes twice", job=self._job, reason=reason
        )
        await self.close()

    async def _are_committed(self, commits: list[Commit]) -> bool:
        """Whether a commit with an unknown outcome has happened."""
        found = await self._on_thread(lambda: self._reader.committed(one.partition for one in commits))
        return all(found.get(one.partition) == one for one in commits)

    def _resumed(self, plan: PartitionProgress, committed: Commit | None) -> PartitionProgress:
        note = None if committed is None else _NOTE.fullmatch(committed.metadata)
        if committed is None or note is None or note["job"] != self._job:
            return replace(plan, position=plan.start, records=0, failed=0)
        return replace(plan, position=committed.offset, records=int(note["records"]), failed=int(note["failed"]))

    def _commit(self, place: PartitionProgress) -> Commit:
        return Commit(place.partition, place.position, f"job={self._job} records={place.records} failed={place.failed}")


def refuse_if_final(topics: str, why: Sequence[Failed]) -> None:
    """Raises RefusedError when the records can never be written."""
    for one in why:
        if one.error not in (DeliveryError.RETRIABLE, DeliveryError.AUTHENTICATION):
            raise RefusedError(f"its records cannot be written to {topics or 'Kafka'}: {one.text}")
