"""confluent-kafka (librdkafka): calls that block run in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as RawMessage
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined] # at run time it does

from tests.clients.contract import (
    ALL_COMPRESSIONS,
    EVERYTHING,
    OPERATION_TIMEOUT_SECONDS,
    ClientError,
    Copying,
    Delivery,
    Message,
    Reading,
    Received,
    Sending,
)
from tests.clients.entrances import of_librdkafka

POLL_SECONDS = 0.2


class ConfluentClient:
    name = "confluent"
    can = EVERYTHING
    compressions = ALL_COMPRESSIONS

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        return await asyncio.to_thread(self._produce, messages, sending)

    async def consume(self, reading: Reading) -> list[Received]:
        return await asyncio.to_thread(self._consume, reading)

    def _produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        producer = Producer(
            {
                **of_librdkafka(self._bootstrap),
                "acks": str(sending.acks),
                "compression.type": str(sending.compression),
                "enable.idempotence": sending.idempotent,
                "delivery.timeout.ms": int(OPERATION_TIMEOUT_SECONDS * 1000),
            }
        )
        deliveries: list[Delivery] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, raw: RawMessage) -> None:
            if error is not None:
                errors.append(error)
                return
            record = received(raw)
            # Without an acknowledgement librdkafka has no offset to tell.
            offset = record.offset if record.offset >= 0 else None
            deliveries.append(Delivery(record.value, record.topic, record.partition, offset))

        for message in messages:
            producer.produce(
                message.topic,
                value=message.value,
                key=message.key,
                headers=[(name, value.encode()) for name, value in message.headers],
                timestamp=message.timestamp_ms or 0,
                on_delivery=delivered,
            )
        left = producer.flush(OPERATION_TIMEOUT_SECONDS)
        if errors or left:
            raise ClientError(f"{self.name}: {left} messages undelivered, errors {[str(error) for error in errors]}")
        return deliveries

    def _consume(self, reading: Reading) -> list[Received]:
        consumer = Consumer(
            {
                **of_librdkafka(self._bootstrap),
                "group.id": reading.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": str(reading.isolation),
            }
        )
        records: list[Received] = []
        deadline = time.monotonic() + OPERATION_TIMEOUT_SECONDS
        try:
            consumer.subscribe(list(reading.topics))
            while len(records) < reading.count:
                if time.monotonic() > deadline:
                    raise ClientError(f"{self.name}: {len(records)} of {reading.count} records in time")
                raw = consumer.poll(POLL_SECONDS)
                if raw is not None:
                    records.append(received(raw))
            commit(consumer, {(record.topic, record.partition): record.offset + 1 for record in records})
        except KafkaException as error:
            raise ClientError(f"{self.name}: {error}") from error
        finally:
            consumer.close()
        return records

    async def copy(self, copying: Copying) -> None:
        await asyncio.to_thread(self._copy, copying)

    def _copy(self, copying: Copying) -> None:
        consumer = Consumer(
            {
                **of_librdkafka(self._bootstrap),
                "group.id": copying.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        producer = Producer({**of_librdkafka(self._bootstrap), "transactional.id": copying.transactional_id})
        ends: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + OPERATION_TIMEOUT_SECONDS
        left = copying.count
        try:
            producer.init_transactions(OPERATION_TIMEOUT_SECONDS)
            producer.begin_transaction()
            consumer.subscribe([copying.source])
            while left:
                if time.monotonic() > deadline:
                    raise ClientError(f"{self.name}: {left} of {copying.count} records are missing")
                raw = consumer.poll(POLL_SECONDS)
                if raw is not None:
                    record = received(raw)
                    left -= 1
                    ends[record.topic, record.partition] = record.offset + 1
                    for target in copying.targets:
                        producer.produce(target, value=record.value, key=record.key)
            offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
            metadata = consumer.consumer_group_metadata()
            # A broker that verifies a Produce and a TxnOffsetCommit of one transaction at once refuses the Produce with
            # a retriable error (KIP-890), and librdkafka sends no batch again once an abort has begun.
            producer.flush(OPERATION_TIMEOUT_SECONDS)
            producer.send_offsets_to_transaction(offsets, metadata, OPERATION_TIMEOUT_SECONDS)
            if copying.commits:
                producer.commit_transaction(OPERATION_TIMEOUT_SECONDS)
            else:
                producer.abort_transaction(OPERATION_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise ClientError(f"{self.name}: {error}") from error
        finally:
            consumer.close()


class ConfluentAdmin:
    name = "confluent"
    can = EVERYTHING

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient(of_librdkafka(bootstrap))

    async def create_topic(self, topic: str, partitions: int) -> None:
        futures = self._admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=-1)])
        await self._done(futures[topic])

    async def delete_topic(self, topic: str) -> None:
        await self._done(self._admin.delete_topics([topic])[topic])

    async def topics(self) -> set[str]:
        metadata = await asyncio.to_thread(self._admin.list_topics, timeout=OPERATION_TIMEOUT_SECONDS)
        return set(metadata.topics)

    async def partitions(self, topic: str) -> int:
        metadata = await asyncio.to_thread(self._admin.list_topics, topic, timeout=OPERATION_TIMEOUT_SECONDS)
        if metadata.topics[topic].error is not None:
            raise ClientError(f"{self.name}: {metadata.topics[topic].error}")
        return len(metadata.topics[topic].partitions)

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = await self._done(self._admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in entries.items()}

    async def brokers(self) -> set[str]:
        cluster = await self._done(self._admin.describe_cluster())
        return {f"{node.host}:{node.port}" for node in cluster.nodes}

    async def groups(self) -> set[str]:
        listed = await self._done(self._admin.list_consumer_groups())
        if listed.errors:
            raise ClientError(f"{self.name}: {listed.errors}")
        return {group.group_id for group in listed.valid}

    async def committed(self, group: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        found = await self._done(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group])
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions if each.topic in topics}

    async def close(self) -> None:
        """librdkafka's admin client ends with its object."""

    async def _done(self, future: Any) -> Any:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), OPERATION_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise ClientError(f"{self.name}: {error}") from error


def received(raw: RawMessage) -> Received:
    """The record of a message; an error in its place is raised."""
    error = raw.error()
    if error is not None:
        raise KafkaException(error)
    topic, partition, offset, value, key = raw.topic(), raw.partition(), raw.offset(), raw.value(), raw.key()
    assert topic is not None and partition is not None and value is not None
    headers = dict(raw.headers() or ())
    return Received(
        topic=topic,
        partition=partition,
        offset=-1 if offset is None else offset,
        value=_text(value),
        key=None if key is None else _text(key),
        headers=tuple(sorted((name, _text(header or b"")) for name, header in headers.items())),
        timestamp_ms=raw.timestamp()[1],
    )


def _text(content: bytes | str) -> str:
    return content if isinstance(content, str) else content.decode()


def commit(consumer: Consumer, positions: Mapping[tuple[str, int], int]) -> None:
    """Commits the positions and returns when the group has them; an error of a single partition is raised as well."""
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
    for answer in consumer.commit(offsets=offsets, asynchronous=False) or ():
        if answer.error is not None:
            raise KafkaException(answer.error)
