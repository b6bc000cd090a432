"""Transactions for callers, one at a time for each transactional id; and requests that are carried out once.

A transactional id has one home cluster in a mesh. So there may be several ids, each with a writer. A request uses the
first id whose home has all its topics; the id is remembered for these topics. All code belongs to the event loop.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from services.sidecar.auditing.events import AuditType, produced
from services.sidecar.auditing.trail import OFF, AuditTrail
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.producing.idempotency import IdempotencyKey, KeptAnswers
from services.sidecar.producing.transaction_log import TransactionLog
from services.sidecar.producing.transaction_writer import Answered, TransactionWriter, Work, must_be_the_same
from services.sidecar.producing.transactional_client import CLOSE_SECONDS, Elsewhere
from services.sidecar.records import DeliveryError, Failed, WriteOutcome
from services.sidecar.telemetry import metrics
from services.sidecar.telemetry.traffic import NO_TRAFFIC, SidecarTraffic

MAX_REMEMBERED_TOPICS = 10_000

NOT_DONE = Failed(DeliveryError.RETRIABLE, "the transaction was not done")


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds of transactions and of the kept answers."""

    max_waiting: int
    seconds: float
    """The bound of one transaction, and of the wait for its turn."""
    keep_ms: int
    max_keys: int
    max_bytes: int


class Transactions:
    """The transactions of the whole sidecar. No producer is opened before the first request."""

    def __init__(
        self,
        properties: Callable[[str], dict[str, Any]],
        plain: dict[str, Any],
        ids: Sequence[str],
        limits: TransactionLimits,
        audit: AuditTrail = OFF,
        traffic: SidecarTraffic = NO_TRAFFIC,
    ) -> None:
        """`properties`: the properties of a producer with a transactional id; `plain`: those of any other client."""
        self._limits = limits
        self._audit = audit
        self._traffic = traffic
        self._kept = KeptAnswers(keep_ms=limits.keep_ms, max_keys=limits.max_keys, max_bytes=limits.max_bytes)
        self._writers = [
            TransactionWriter(
                one,
                partial(properties, one),
                TransactionLog(f"{one}.idempotency", plain, keep_ms=limits.keep_ms),
                self._kept,
            )
            for one in ids
        ]
        self._homes: dict[str, TransactionWriter] = {}
        self._running: dict[str, tuple[str, asyncio.Future[None]]] = {}
        self._waiting = 0
        self._tasks: set[asyncio.Task[Answered]] = set()
        self._stopping = False

    async def write(self, work: Work) -> Answered:
        """Writes all records or none. Fault when Kafka refuses, or the outcome is unknown; else see `Answered`."""
        if self._stopping or self._waiting >= self._limits.max_waiting:
            metrics.transactions.labels("turned away").inc()
            why = "the sidecar is stopping" if self._stopping else f"{self._waiting} requests wait already"
            raise Fault(FaultKind.TRANSACTIONS_BUSY, f"{why} (max_waiting_transactions); send again later")
        self._waiting += 1
        metrics.waiting_transactions.set(self._waiting)
        task = asyncio.create_task(self._counted(work))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)  # a caller that goes away must not leave a transaction half done

    async def stop(self, timeout: float) -> None:
        """Waits for the requests that have begun, `timeout` seconds at most."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        for writer in self._writers:
            writer.interrupt()
        await asyncio.gather(*(writer.close(CLOSE_SECONDS) for writer in self._writers))

    def _done(self, task: "asyncio.Task[Answered]") -> None:
        self._tasks.discard(task)
        self._waiting -= 1
        metrics.waiting_transactions.set(self._waiting)
        if not task.cancelled():
            task.exception()  # its caller may have gone

    async def _counted(self, work: Work) -> Answered:
        began = time.monotonic()
        outcomes: Sequence[Sequence[WriteOutcome]] = [[NOT_DONE]] * len(work.entries)
        try:
            answered = await self._audited(work)
            outcomes = answered.outcomes
        finally:
            for entry, deliveries in zip(work.entries, outcomes, strict=False):  # none of an answer that is replayed
                self._traffic.transacted(entry.topic, entry.records, deliveries, time.monotonic() - began)
        return answered

    async def _audited(self, work: Work) -> Answered:
        if not self._audit.wants(AuditType.PRODUCER):
            return await self._answered(work)
        if not await self._audit.room(self._limits.seconds):
            metrics.transactions.labels("turned away").inc()
            raise Fault(FaultKind.TRANSACTIONS_BUSY, f"{await self._audit.fault()}; send again later")
        try:
            answered = await self._answered(work)
        except Fault as fault:
            why = Failed(DeliveryError.RETRIABLE, fault.description)
            self._record(work, [[why] * len(entry.records) for entry in work.entries])
            raise
        self._record(work, answered.outcomes)  # none of an answer that was given before
        return answered

    def _record(self, work: Work, outcomes: Sequence[Sequence[WriteOutcome]]) -> None:
        for entry, deliveries in zip(work.entries, outcomes, strict=False):
            self._audit.record(produced(entry.topic, entry.records, deliveries))

    async def _answered(self, work: Work) -> Answered:
        if work.key is None:
            return await self._on_a_home(work)
        async with self._alone(work.key):
            return await self._on_a_home(work)

    @asynccontextmanager
    async def _alone(self, key: IdempotencyKey) -> AsyncIterator[None]:
        """Waits until no other request works under this key, and keeps the key for the context."""
        deadline = time.monotonic() + self._limits.seconds
        while key.key in self._running:
            digest, running = self._running[key.key]
            must_be_the_same(key, digest)
            await asyncio.wait([running], timeout=max(deadline - time.monotonic(), 0))
            if not running.done():
                raise Fault(
                    FaultKind.TRANSACTIONS_BUSY,
                    f"Idempotency-Key {key.key!r}: its first request is still being carried out; send again later",
                )
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running[key.key] = (key.digest, ended)
        try:
            yield
        finally:
            del self._running[key.key]
            ended.set_result(None)

    async def _on_a_home(self, work: Work) -> Answered:
        """Writes with the first id whose home has all topics. A topic may have moved since the first request with a
        key, so the key is looked up among the answers of every id.
        """
        if work.key is not None:
            for writer in self._writers:
                await writer.learn_answers(self._limits.seconds)
        told = ""
        for writer in self._writers_for(work.topics):
            try:
                answered = await writer.write(work, self._limits.seconds)
            except Elsewhere as refused:
                told = f"{', '.join(refused.topics)}: {refused}"
                for topic in work.topics:
                    if self._homes.get(topic) is writer:
                        del self._homes[topic]
                continue
            self._remember(work.topics, writer)
            return answered
        metrics.transactions.labels("refused").inc()
        raise Fault(
            FaultKind.TRANSACTION_REFUSED,
            f"Topics {', '.join(work.topics)} cannot be written in one transaction as "
            f"{', '.join(writer.id for writer in self._writers)}: Kafka refuses one of them ({told}). "
            "Either the principal may not write to the topic; or a cluster older than Kafka 3.0 has the topic or the "
            "id, and the two are on different clusters. Grant the right, or give the id a rule that leads to the "
            "topic's cluster, or name an id with that home in transactional_ids",
        )

    def _writers_for(self, topics: Sequence[str]) -> list[TransactionWriter]:
        """All writers; the writer that served all these topics before comes first."""
        homes = {self._homes.get(topic) for topic in topics}
        return sorted(self._writers, key=lambda writer: homes != {writer})

    def _remember(self, topics: Sequence[str], writer: TransactionWriter) -> None:
        if len(self._homes) + len(topics) > MAX_REMEMBERED_TOPICS:
            self._homes.clear()
        self._homes.update(dict.fromkeys(topics, writer))
