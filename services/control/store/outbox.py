"""The outbox publisher: carries the log, in order, to the topic `mesh.events` on the home cluster.

Theory of operation
1. Only the leader publishes. It starts after the stored position, sends events in the order of their positions
   through an idempotent producer with acks=all, and stores the new position when all are acknowledged.
2. After any failure it starts again from the stored position, with a new producer: it may go back to events that
   are there already, and goes on from there in order. A leader that was cut off may add its last batch late; all
   before that batch is there by then. Readers drop what they have seen, by position. Nothing is ever left out.
   Bytes are those of the log: the chain of hashes holds in the topic too.
3. The position counts for one Kafka cluster. When the home cluster is another one, or its topic is empty,
   everything is sent again.
4. If the topic has lost its beginning (somebody set a retention), no router that starts can follow the log. Control
   sets the settings of the topic right, deletes what is left, and sends everything again. Event 1 is there then, so
   this happens once.
5. A topic whose last event is not in this database holds the log of another mesh (or of a database that was lost).
   Nothing is added to it: routers would follow that log, and its own mesh would read ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import structlog
from confluent_kafka import Producer
from prometheus_client import Counter, Gauge

from mesh.event_log.pieces import Record, records_of
from services.control.domain.errors import Refusal
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.home_topic import (
    KAFKA_TIMEOUT,
    Home,
    HomeThread,
    PublishError,
    delete_records,
    ordered_producer,
    prepare_topic,
    publish,
    record_at,
)
from services.control.store.journal import Journal
from services.control.store.log import PAGE, Entry, OutboxPosition

TOPIC_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Kept for ever: routers build their tables from the beginning."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.2, 5.0
PORTION_BYTES = 2 * 1024 * 1024
"""Bytes of records that are sent before the first record is acknowledged."""
GATHER_S, LONGEST_GATHER_S = 0.01, 0.1
"""Seconds between two batches, for each event of the first one, so that events which come one by one share a batch. The
first event does not wait, and the end of a move that comes alone waits no longer than 10 ms.
"""

log = structlog.get_logger(__name__)
published_total = Counter("kafka_mesh_control_outbox_published_total", "Events carried to mesh.events.")
errors_total = Counter(
    "kafka_mesh_control_outbox_errors_total", "Restarts of the publisher of mesh.events after an error."
)
restored_total = Counter("kafka_mesh_control_outbox_restored_total", "Times that mesh.events had lost its beginning.")
lag_gauge = Gauge("kafka_mesh_control_outbox_lag_events", "Events in the log that mesh.events does not have yet.")
position_gauge = Gauge("kafka_mesh_control_outbox_position", "Position of the last event carried to mesh.events.")


class ForeignLogError(PublishError):
    """The topic holds a log that is not this database's."""


class Publisher:
    """Publishes while it runs; `run` is started when this process leads and cancelled when it does not."""

    def __init__(
        self, database: Database, journal: Journal, home: Home, *, on_foreign: Callable[[str], None] = lambda _: None
    ) -> None:
        self._on_foreign = on_foreign
        self._stored = OutboxPosition(database)
        self._journal = journal
        self._home = home
        self._thread = HomeThread("outbox")
        self.position = 0
        self.kafka_cluster_id = ""
        self.trouble = ""
        """Why nothing is published just now; empty when all is well."""
        self.foreign = ""
        """The evidence that the topic belongs to another mesh; empty when there is none."""
        self.looked = asyncio.Event()
        """Set when the topic was read for the first time, or could not be read."""
        lag_gauge.set_function(lambda: journal.view.position - self.position)

    def is_home(self, kafka_cluster_id: str, addresses: Sequence[str]) -> bool:
        """Whether a cluster is the home cluster: by its id where both are known, by its addresses otherwise."""
        if kafka_cluster_id and self.kafka_cluster_id:
            return kafka_cluster_id == self.kafka_cluster_id
        return not set(addresses).isdisjoint(self._home.bootstrap_servers)

    async def run(self) -> None:
        """Publishes until cancelled; starts again after each failure."""
        backoff = FIRST_BACKOFF
        while True:
            before = self.position
            try:
                await self._session()
            except (PublishError, StoreUnavailableError, Refusal, TimeoutError) as error:
                errors_total.inc()
                self.trouble = str(error) or f"the home cluster did not answer within {KAFKA_TIMEOUT:.0f} s"
                log.warning("the publisher of events starts again", reason=self.trouble, seconds=backoff)
                if isinstance(error, ForeignLogError):
                    self.foreign = str(error)
                    self._on_foreign(self.foreign)
                self.looked.set()
            backoff = FIRST_BACKOFF if self.position > before else backoff
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF)

    async def caught_up(self, position: int) -> None:
        """Returns when mesh.events has everything up to `position`."""
        while self.position < position:
            await asyncio.sleep(0.02)

    def close(self) -> None:
        self._thread.close()

    async def _session(self) -> None:
        settings = self._home.connection("kafka-mesh-control-outbox")
        name = self._home.topic
        topic = await self._thread.run(lambda: prepare_topic(settings, name, TOPIC_SETTINGS, enforced=True))
        if not topic.is_empty:
            await self._refuse_foreign(await self._thread.run(lambda: record_at(settings, name, topic.end - 1)))
        if self.foreign:
            self.foreign = ""
            self._on_foreign("")
        self.looked.set()
        position, stored_id = await self._stored.load()
        if topic.is_empty or (stored_id and stored_id != topic.cluster_id):
            if position:
                log.warning(
                    "the topic is empty or on another cluster: all events are published again",
                    cluster_id=topic.cluster_id,
                    was=stored_id,
                )
            position = 0
        elif topic.start > 0 and await self._first_key(settings, topic.start) != b"1":
            log.error("the topic has lost its beginning: it is restored from the database", topic=name)
            restored_total.inc()
            await self._thread.run(lambda: delete_records(settings, name))
            position = 0
        self.position, self.kafka_cluster_id = position, topic.cluster_id
        producer = await self._thread.run(lambda: ordered_producer(settings))
        try:
            while True:
                batch = await self._journal.entries_after(self.position)
                if not batch:
                    self.trouble = ""
                    await self._journal.grown_beyond(self.position)
                    continue
                await self._publish(producer, batch)
                if len(batch) < PAGE:
                    await asyncio.sleep(pause_behind(len(batch)))
        finally:
            producer.purge()

    async def _first_key(self, settings: dict[str, object], start: int) -> bytes:
        return (await self._thread.run(lambda: record_at(settings, self._home.topic, start))).key

    async def _publish(self, producer: Producer, batch: Sequence[Entry]) -> None:
        """Carries these events to the topic, in portions that each are acknowledged within a bound."""
        portion: list[Record] = []
        for event, body in batch:
            records = list(records_of(event.position, body))
            for record in records:
                portion.append(record)
                whole = record is records[-1]
                if sum(len(each.value) for each in portion) < PORTION_BYTES and not (
                    whole and event is batch[-1].event
                ):
                    continue
                await self._thread.run(partial(publish, producer, self._home.topic, portion))
                portion = []
                if whole:
                    # shown only when it is stored: after a stop of control at this position no event comes twice
                    await self._stored.store(event.position, self.kafka_cluster_id)
                    published_total.inc(event.position - self.position)
                    self.position = event.position
                    position_gauge.set(self.position)

    async def _refuse_foreign(self, last: Record) -> None:
        position = int(last.key) if last.key.isdigit() else 0
        own = await self._journal.store.entries_after(position - 1, limit=1) if position else []
        if not any(last.value == record.value for _, body in own for record in records_of(position, body)):
            where = ",".join(self._home.bootstrap_servers)
            raise ForeignLogError(
                f"topic {self._home.topic} on {where} holds the log of another mesh: its last event "
                f"({last.key.decode(errors='replace')[:20]}) is not in this database. Give this mesh another home "
                "cluster or events_topic, or the database that belongs to the log. If the other mesh exists no more, "
                "delete the topic"
            )


def pause_behind(number: int) -> float:
    """Seconds before the next batch, behind a batch of so many events."""
    return min(number * GATHER_S, LONGEST_GATHER_S)
