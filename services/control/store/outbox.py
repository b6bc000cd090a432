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
4. A topic whose last event is not in this database holds the log of another mesh (or of a database that was lost).
   Nothing is added to it: routers would follow that log, and its own mesh would read ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition
from google.protobuf.message import DecodeError
from prometheus_client import Counter, Gauge

from mesh.rpc import events
from services.control.domain.errors import Refusal
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.home_topic import (
    KAFKA_TIMEOUT,
    Home,
    HomeThread,
    PublishError,
    ordered_producer,
    prepare_topic,
    publish,
)
from services.control.store.journal import Journal
from services.control.store.log import OutboxPosition

TOPIC_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Kept for ever: routers build their tables from the beginning."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.2, 5.0

log = structlog.get_logger(__name__)
published_total = Counter("control_outbox_published_total", "Events carried to mesh.events.")
errors_total = Counter("control_outbox_errors_total", "Times that the publisher had to start again.")
lag_gauge = Gauge("control_outbox_lag", "Events in the log that mesh.events does not have yet.")
position_gauge = Gauge("control_outbox_position", "Position of the last event carried to mesh.events.")


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
        """What says that the topic belongs to another mesh; empty when it does not."""
        self.looked = asyncio.Event()
        """Set when the topic was looked at for the first time, or could not be."""
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
                log.warning("publisher starts again", reason=self.trouble, seconds=backoff)
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
        topic = await self._thread.run(lambda: prepare_topic(settings, self._home.topic, TOPIC_SETTINGS))
        cluster_id = topic.cluster_id
        is_empty = topic.end == 0 or topic.start > 0  # a log without its beginning is none
        if not is_empty:
            await self._refuse_foreign(await self._thread.run(lambda: _last_event(settings, self._home.topic)))
        if self.foreign:
            self.foreign = ""
            self._on_foreign("")
        self.looked.set()
        position, stored_id = await self._stored.load()
        if position and (is_empty or (stored_id and stored_id != cluster_id)):
            log.warning(
                "the topic starts from the beginning", cluster_id=cluster_id, was=stored_id, topic_is_empty=is_empty
            )
            position = 0
        self.position, self.kafka_cluster_id = position, cluster_id
        producer = await self._thread.run(lambda: ordered_producer(settings))
        try:
            while True:
                batch = await self._journal.entries_after(self.position)
                if not batch:
                    self.trouble = ""
                    await self._journal.grown_beyond(self.position)
                    continue
                records = [(str(event.position), body) for event, body in batch]
                await self._thread.run(partial(publish, producer, self._home.topic, records))
                published_total.inc(len(batch))
                # told only when it is kept: who stops control on the strength of it must not see the events twice
                last = batch[-1].event.position
                await self._stored.store(last, cluster_id)
                self.position = last
                position_gauge.set(self.position)
        finally:
            producer.purge()

    async def _refuse_foreign(self, last: events.Event) -> None:
        own = await self._journal.store.after(last.position - 1, limit=1)
        if not own or own[0].event_id != last.event_id:
            where = ",".join(self._home.bootstrap_servers)
            raise ForeignLogError(
                f"topic {self._home.topic} on {where} holds the log of another mesh: its last event "
                f"({last.position}, {last.event_id}) is not in this database; give this mesh another home cluster or "
                "events_topic, or the database that goes with the log; if that mesh is gone for ever, delete the topic"
            )


def _last_event(settings: dict[str, Any], topic: str) -> events.Event:
    consumer = Consumer({**settings, "group.id": "kafka-mesh-control-outbox", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=KAFKA_TIMEOUT)
        consumer.assign([TopicPartition(topic, 0, end - 1)])
        message = consumer.poll(KAFKA_TIMEOUT)
    except KafkaException as error:
        raise PublishError(f"the last event of {topic} can't be read: {error.args[0].str()}") from None
    finally:
        consumer.close()
    if message is None or message.error() is not None:
        raise PublishError(f"the last event of {topic} can't be read: {message.error() if message else 'no answer'}")
    try:
        return events.Event.FromString(message.value() or b"")
    except DecodeError:
        return events.Event(event_id="not an event of a mesh")
