"""Topics of control on the home cluster: made where they are absent, written in order, all blocking calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way

from services.control.upstream.connections import knock
from services.control.upstream.references import resolved_all

T = TypeVar("T")

KAFKA_TIMEOUT = 5.0
"""Seconds for one request to the home cluster, or for one batch to be acknowledged."""


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
    """One thread for the blocking calls of one publisher, each within a bound."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        async with asyncio.timeout(KAFKA_TIMEOUT * 3):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

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


class PublishError(RuntimeError):
    """The home cluster did not take what it was to keep; says where and why."""


def ordered_producer(settings: dict[str, Any]) -> Producer:
    """Writes in order, each record once, acknowledged by all replicas."""
    own = {
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 0,
        "message.timeout.ms": int(KAFKA_TIMEOUT * 1000) - 1000,
    }
    return Producer({**settings, **own})


def prepare_topic(settings: dict[str, Any], topic: str, config: Mapping[str, str]) -> HomeTopic:
    """Makes sure that the topic is there, with one partition."""
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
        consumer = Consumer({**settings, "group.id": "kafka-mesh-control-outbox", "enable.auto.commit": False})
        try:
            first, last = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=KAFKA_TIMEOUT)
        finally:
            consumer.close()
    except KafkaException as error:
        raise PublishError(f"the home cluster at {where} does not answer: {error.args[0].str()}") from None
    except TimeoutError as error:
        raise PublishError(f"the home cluster at {where} does not answer: {error}") from None
    return HomeTopic(metadata.cluster_id, first, last)


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


def publish(producer: Producer, topic: str, records: Iterable[tuple[str, bytes]]) -> None:
    """Writes keys and values and waits until all are acknowledged; PublishError when one is not."""
    failed: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(f"record {(message.key() or b'?').decode()}: {error.str()}")

    try:
        for key, value in records:
            producer.produce(topic, value, key.encode(), partition=0, on_delivery=delivered)
        left = producer.flush(KAFKA_TIMEOUT)
    except (KafkaException, BufferError) as error:
        raise PublishError(f"the home cluster does not take records: {error}") from None
    if failed or left:
        raise PublishError(
            f"the home cluster does not take records: {failed[0] if failed else f'{left} not acknowledged in time'}"
        )
