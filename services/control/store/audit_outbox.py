"""Carries audit events, in order, to the topic `mesh.audit` on the home cluster; by the leader alone.

An empty topic gets all audit events that PostgreSQL keeps. As with the outbox of events, a position in PostgreSQL moves
on when a batch is acknowledged. Events may come twice after a failure, and no event is left out while PostgreSQL keeps
it. Readers drop repeats by `sequence`.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog
from prometheus_client import Counter
from sqlalchemy import select

from mesh.event_log.pieces import Record
from services.control.domain.errors import Refusal
from services.control.store import schema
from services.control.store.audit import AT_ONCE, AuditTrail
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.home_topic import (
    Home,
    HomeThread,
    PublishError,
    ordered_producer,
    prepare_topic,
    publish,
)
from services.control.store.statements import Statement

FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 10.0
LOOK_EVERY = 5.0
"""Seconds between two checks for events that other replicas stored."""
LINGER_S = 0.5
"""Seconds in which more audit events may join a batch: commands that come one by one share its transactions. No batch
that has room left is followed sooner by the next one.
"""
DAY_MS = 86_400_000

log = structlog.get_logger(__name__)
published_total = Counter("kafka_mesh_control_audit_published_total", "Audit events carried to mesh.audit.")
errors_total = Counter(
    "kafka_mesh_control_audit_publish_errors_total", "Restarts of the publisher of mesh.audit after an error."
)


class AuditPublisher:
    """Publishes while `run` runs. `home` names the cluster and the topic."""

    def __init__(self, database: Database, trail: AuditTrail, home: Home, kept_days: int) -> None:
        self._database = database
        self._trail = trail
        self._home = home
        self._config = {"cleanup.policy": "delete", "retention.ms": str(kept_days * DAY_MS)}
        self._sequence = 0
        self._thread = HomeThread("audit outbox")
        self.trouble = ""
        """The reason why no audit event is published now; empty when all is well."""

    async def run(self) -> None:
        """Publishes until cancelled; starts again after each failure."""
        backoff = FIRST_BACKOFF
        while True:
            before = self._sequence
            try:
                await self._session()
            except (PublishError, StoreUnavailableError, Refusal, TimeoutError) as error:
                errors_total.inc()
                self.trouble = str(error) or "the home cluster did not answer in time"
                log.warning("the publisher of audit events starts again", reason=self.trouble, seconds=backoff)
            backoff = FIRST_BACKOFF if self._sequence > before else backoff
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF)

    def close(self) -> None:
        self._thread.close()

    async def _session(self) -> None:
        settings = self._home.connection("kafka-mesh-control-audit")
        topic = await self._thread.run(lambda: prepare_topic(settings, self._home.topic, self._config))
        self._sequence = await self._position() if topic.end else 0
        producer = await self._thread.run(lambda: ordered_producer(settings))
        try:
            while True:
                batch = await self._trail.after(self._sequence)
                if not batch:
                    self.trouble = ""
                    await self._wait_for_more()
                    continue
                records = [
                    Record(str(event.sequence).encode(), event.SerializeToString(deterministic=True), [])
                    for event in batch
                ]
                await self._thread.run(partial(publish, producer, self._home.topic, records))
                await self._store_position(batch[-1].sequence)
                self._sequence = batch[-1].sequence
                published_total.inc(len(batch))
                if len(batch) < AT_ONCE:
                    await asyncio.sleep(LINGER_S)
        finally:
            producer.purge()

    async def _wait_for_more(self) -> None:
        try:
            async with asyncio.timeout(LOOK_EVERY), self._trail.stored:
                await self._trail.stored.wait()
        except TimeoutError:
            return
        await asyncio.sleep(LINGER_S)

    async def _position(self) -> int:
        async with self._database.transaction() as connection:
            return int(await connection.scalar(select(schema.audit_outbox.c.sequence)) or 0)

    async def _store_position(self, sequence: int) -> None:
        await self._database.carry_out([Statement(b"update audit_outbox set sequence = %s", (sequence,))])
