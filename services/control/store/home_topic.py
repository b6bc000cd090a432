"""Topics of control on the home cluster: made where they are absent, written in order, all blocking calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from prometheus_client import Gauge

from mesh.event_log.pieces import PIECE_BYTES, Record
from services.control.upstream.connections import knock
from services.control.upstream.references import resolved_all

log = structlog.get_logger(__name__)

T = TypeVar("T")

stuck_calls = Gauge("kafka_mesh_control_stuck_home_calls", "Calls to the home cluster that have not returned in time.")

KAFKA_TIMEOUT = 5.0
"""Seconds for one request to the home cluster, or for one batch to be acknowledged."""
MOST_STUCK = 8
"""Calls of one publisher that may be stuck at a time: each keeps a thread."""
RECORD_BYTES = PIECE_BYTES + 64 * 1024
"""Largest record, and largest batch: a piece of an event with its headers. The topic has to take as much."""


@dataclass(frozen=True, slots=True)
class Home:
    """How to reach the home cluster: addresses, librdkafka properties for security (may be references), the topic."""

    bootstrap_servers: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    topic: str = "mesh.events"

    def connection(self, client_id: str) -> dict[str, Any]:
        """librdkafka's settings, with what references stand for now."""
        return {
            **resolved_all("home_properties", self.properties),
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "client.id": client_id,
            "log_level": 0,
        }


class HomeThread:
    """One thread for the blocking calls of one publisher, each within a bound.

    A call that waits while the wall clock is set back may wait for as long as the clock went back. Such a call keeps
    its thread, and the next call gets another one. With `MOST_STUCK` such calls, there are no further calls until one
    of them returns.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = self._started()
        self._stuck: set[Future[Any]] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns; TimeoutError if `work` takes too long, or if `MOST_STUCK` calls do."""
        if len(self._stuck) >= MOST_STUCK:
            raise TimeoutError(f"{MOST_STUCK} calls to the home cluster have not returned")
        call = self._thread.submit(work)
        try:
            async with asyncio.timeout(KAFKA_TIMEOUT * 3):
                return await asyncio.wrap_future(call)
        except TimeoutError:
            if not call.done():
                self._leave(call)
            raise

    def _leave(self, call: Future[Any]) -> None:
        """Leaves its thread to a call that has not returned."""
        self._stuck.add(call)
        stuck_calls.inc()

        def returned(_: Future[Any]) -> None:
            self._stuck.discard(call)
            stuck_calls.dec()

        call.add_done_callback(returned)
        self.close()
        self._thread = self._started()

    def _started(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix=self._name)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class HomeTopic:
    """A topic as it was found."""

    cluster_id: str
    start: int
    """Offset of its first record."""
    end: int
    """Offset behind its last record."""

    @property
    def is_empty(self) -> bool:
        return self.start == self.end


class PublishError(RuntimeError):
    """The home cluster did not accept the records; the message says where and why."""


def ordered_producer(settings: dict[str, Any]) -> Producer:
    """A producer that writes in order, each record once, acknowledged by all replicas."""
    own = {
        "enable.idempotence": True,
        "acks": "all",
        "message.max.bytes": RECORD_BYTES,
        "batch.size": RECORD_BYTES,
        "linger.ms": 0,
        "message.timeout.ms": int(KAFKA_TIMEOUT * 1000) - 1000,
    }
    return Producer({**settings, **own})


def prepare_topic(
    settings: dict[str, Any], topic: str, config: Mapping[str, str], *, enforced: bool = False
) -> HomeTopic:
    """Makes sure that the topic is there, has one partition, and takes the largest record.

    `enforced`: a topic with other settings gets those of `config`.
    """
    where = settings["bootstrap.servers"]
    try:
        knock(where.split(","))
        admin = AdminClient(settings)
        metadata: Any = admin.list_topics(timeout=KAFKA_TIMEOUT)
        if topic not in metadata.topics:
            new = NewTopic(topic, num_partitions=1, replication_factor=-1, config=dict(config))
            _created(admin.create_topics([new], request_timeout=KAFKA_TIMEOUT)[topic])
            metadata = _visible(admin, topic)
        partitions = len(metadata.topics[topic].partitions)
        if partitions != 1:
            raise PublishError(
                f"topic {topic} on {where} has {partitions} partitions and must have one, for the order of its "
                "records; delete it, control creates it anew"
            )
        _see_to_settings(admin, topic, config if enforced else {}, where)
        consumer = Consumer({**settings, "group.id": "kafka-mesh-control-outbox", "enable.auto.commit": False})
        try:
            first, last = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=KAFKA_TIMEOUT)
        finally:
            consumer.close()
    except KafkaException as error:
        raise PublishError(f"the home cluster at {where} does not answer: {error.args[0].str()}") from None
    except TimeoutError as error:
        raise PublishError(f"the home cluster at {where} does not answer: {error}") from None
    return HomeTopic(metadata.cluster_id or "", first, last)


def _see_to_settings(admin: Any, topic: str, wanted: Mapping[str, str], where: str) -> None:
    """If a cluster hides a topic's settings, control assumes they are right; if not, the cluster refuses records."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=KAFKA_TIMEOUT)[resource].result(KAFKA_TIMEOUT)
    except KafkaException as error:
        log.warning("the settings of a topic are not shown to control", topic=topic, reason=error.args[0].str())
        return
    wrong = {name: value for name, value in wanted.items() if name in found and found[name].value != value}
    largest = found.get("max.message.bytes")
    if largest is not None and int(largest.value or RECORD_BYTES) < RECORD_BYTES:
        wrong["max.message.bytes"] = str(RECORD_BYTES)
    if not wrong:
        return
    had = ", ".join(f"{name}={found[name].value}" for name in wrong)
    changes = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wrong.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    try:
        admin.incremental_alter_configs([resource], request_timeout=KAFKA_TIMEOUT)[resource].result(KAFKA_TIMEOUT)
    except KafkaException as error:
        needed = ",".join(f"{name}={value}" for name, value in wrong.items())
        raise PublishError(
            f"topic {topic} on {where} has {had}, and control may not change that ({error.args[0].str()}); run: "
            f"kafka-configs --bootstrap-server {where} --alter --entity-type topics --entity-name {topic} "
            f"--add-config {needed}"
        ) from None
    log.warning("control has set a topic's settings right", topic=topic, had=had, has=wrong)


def record_at(settings: dict[str, Any], topic: str, offset: int) -> Record:
    """The record of the topic's one partition at this offset."""
    consumer = Consumer({**settings, "group.id": "kafka-mesh-control-outbox", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(KAFKA_TIMEOUT)
    except KafkaException as error:
        raise PublishError(f"the record of {topic} at offset {offset} can't be read: {error.args[0].str()}") from None
    finally:
        consumer.close()
    if message is None or message.error() is not None:
        reason = message.error() if message else "the home cluster did not answer in time"
        raise PublishError(f"the record of {topic} at offset {offset} can't be read: {reason}")
    return Record(message.key() or b"", message.value() or b"", [])


def delete_records(settings: dict[str, Any], topic: str) -> None:
    """Deletes all records of the topic's one partition."""
    everything = TopicPartition(topic, 0, OFFSET_END)
    try:
        admin = AdminClient(settings)
        admin.delete_records([everything], request_timeout=KAFKA_TIMEOUT)[everything].result(KAFKA_TIMEOUT)
    except (KafkaException, TimeoutError) as error:
        raise PublishError(
            f"the records of {topic} can't be deleted ({error}): delete the topic, control creates it anew"
        ) from None


def _created(future: Any) -> None:
    try:
        future.result(KAFKA_TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _visible(admin: Any, topic: str) -> Any:
    deadline = time.monotonic() + KAFKA_TIMEOUT
    while True:
        metadata = admin.list_topics(timeout=KAFKA_TIMEOUT)
        if metadata.topics.get(topic) is not None and metadata.topics[topic].partitions:
            return metadata
        if time.monotonic() > deadline:
            raise PublishError(f"topic {topic} was created but does not show up")
        time.sleep(0.05)


def publish(producer: Producer, topic: str, records: Iterable[Record]) -> None:
    """Writes records and waits until all are acknowledged; PublishError when a record is not acknowledged."""
    failed: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(f"record {(message.key() or b'?').decode()}: {error.str()}")

    try:
        for key, value, headers in records:
            producer.produce(topic, value, key, partition=0, headers=headers, on_delivery=delivered)
        left = producer.flush(KAFKA_TIMEOUT)
    except (KafkaException, BufferError) as error:
        raise PublishError(f"the home cluster does not take records: {error}") from None
    if failed or left:
        raise PublishError(
            f"the home cluster does not take records: {failed[0] if failed else f'{left} not acknowledged in time'}"
        )
