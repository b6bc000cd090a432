"""kafka-python 3: calls that block run in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.clients.contract import (
    ALL_COMPRESSIONS,
    EVERYTHING,
    OPERATION_TIMEOUT_SECONDS,
    Acks,
    ClientError,
    Compression,
    Copying,
    Delivery,
    Message,
    Reading,
    Received,
    Sending,
)
from tests.clients.entrances import of_python

Answer = TypeVar("Answer")

TIMEOUT_MS = int(OPERATION_TIMEOUT_SECONDS * 1000)


class KafkaPythonClient:
    name = "kafka-python"
    can = EVERYTHING
    compressions = ALL_COMPRESSIONS

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        return await _in_thread(self.name, lambda: self._produce(messages, sending))

    async def consume(self, reading: Reading) -> list[Received]:
        return await _in_thread(self.name, lambda: self._consume(reading))

    async def copy(self, copying: Copying) -> None:
        await _in_thread(self.name, lambda: self._copy(copying))

    def _copy(self, copying: Copying) -> None:
        consumer = KafkaConsumer(
            copying.source,
            **of_python(self._bootstrap),
            group_id=copying.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            consumer_timeout_ms=TIMEOUT_MS,
        )
        producer = KafkaProducer(
            **of_python(self._bootstrap),
            transactional_id=copying.transactional_id,
            delivery_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS // 2,
        )
        ends: dict[TopicPartition, OffsetAndMetadata] = {}
        left = copying.count
        try:
            producer.init_transactions()
            producer.begin_transaction()
            for raw in consumer:
                left -= 1
                ends[TopicPartition(raw.topic, raw.partition)] = OffsetAndMetadata(raw.offset + 1, "", -1)
                for target in copying.targets:
                    producer.send(target, value=raw.value, key=raw.key)
                if not left:
                    break
            else:
                raise ClientError(f"{self.name}: {left} of {copying.count} records are missing")
            producer.send_offsets_to_transaction(ends, copying.group)
            if copying.commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        finally:
            consumer.close()
            producer.close(timeout=OPERATION_TIMEOUT_SECONDS)

    def _produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        producer = KafkaProducer(
            **of_python(self._bootstrap),
            acks="all" if sending.acks is Acks.ALL else int(sending.acks),
            compression_type=None if sending.compression is Compression.NONE else str(sending.compression),
            enable_idempotence=sending.idempotent,
            delivery_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS // 2,
        )
        try:
            futures = [
                producer.send(
                    message.topic,
                    value=message.value.encode(),
                    key=None if message.key is None else message.key.encode(),
                    headers=[(name, value.encode()) for name, value in message.headers],
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            answers = [future.get(timeout=OPERATION_TIMEOUT_SECONDS) for future in futures]
        finally:
            producer.close(timeout=OPERATION_TIMEOUT_SECONDS)
        return [
            Delivery(message.value, answer.topic, answer.partition, answer.offset if answer.offset >= 0 else None)
            for message, answer in zip(messages, answers, strict=True)
        ]

    def _consume(self, reading: Reading) -> list[Received]:
        consumer = KafkaConsumer(
            **of_python(self._bootstrap),
            group_id=reading.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=str(reading.isolation),
            consumer_timeout_ms=TIMEOUT_MS,
        )
        records: list[Received] = []
        try:
            if reading.pattern:
                consumer.subscribe(pattern=reading.pattern)
            else:
                consumer.subscribe(reading.topics)
            for raw in consumer:
                records.append(
                    Received(
                        topic=raw.topic,
                        partition=raw.partition,
                        offset=raw.offset,
                        value=raw.value.decode(),
                        key=None if raw.key is None else raw.key.decode(),
                        headers=tuple(sorted((name, value.decode()) for name, value in raw.headers)),
                        timestamp_ms=raw.timestamp,
                    )
                )
                if len(records) == reading.count:
                    break
            else:
                raise ClientError(f"{self.name}: {len(records)} of {reading.count} records in time")
            ends = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
            consumer.commit({at: OffsetAndMetadata(offset, "", -1) for at, offset in ends.items()})
        finally:
            consumer.close()
        return records


class KafkaPythonAdmin:
    name = "kafka-python"
    can = EVERYTHING

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._started: KafkaAdminClient | None = None

    async def create_topic(self, topic: str, partitions: int) -> None:
        wanted = {topic: {"num_partitions": partitions, "replication_factor": -1}}
        await _in_thread(self.name, lambda: self._admin().create_topics(wanted))

    async def delete_topic(self, topic: str) -> None:
        await _in_thread(self.name, lambda: self._admin().delete_topics([topic]))

    async def topics(self) -> set[str]:
        return set(await _in_thread(self.name, lambda: self._admin().list_topics()))

    async def partitions(self, topic: str) -> int:
        (described,) = await _in_thread(self.name, lambda: self._admin().describe_topics([topic]))
        if described["error_code"]:
            raise ClientError(f"{self.name}: topic {topic!r} answers error {described['error_code']}")
        return len(described["partitions"])

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, None)
        described = await _in_thread(self.name, lambda: self._admin().describe_configs([resource], config_filter="all"))
        return {name: entry["value"] for name, entry in described["topic"][topic].items()}

    async def brokers(self) -> set[str]:
        cluster = await _in_thread(self.name, lambda: self._admin().describe_cluster())
        return {f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]}

    async def groups(self) -> set[str]:
        return {group["group_id"] for group in await _in_thread(self.name, lambda: self._admin().list_groups())}

    async def committed(self, group: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        offsets = await _in_thread(self.name, lambda: self._admin().list_group_offsets({group: None}))
        return {(at.topic, at.partition): found.offset for at, found in offsets[group].items() if at.topic in topics}

    async def close(self) -> None:
        if self._started is not None:
            await asyncio.to_thread(self._started.close)

    def _admin(self) -> KafkaAdminClient:
        if self._started is None:
            self._started = KafkaAdminClient(**of_python(self._bootstrap))
        return self._started


async def _in_thread(client: str, call: Callable[[], Answer]) -> Answer:
    try:
        return await asyncio.to_thread(call)
    except KafkaError as error:
        raise ClientError(f"{client}: {error!r}") from error
