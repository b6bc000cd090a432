"""aiokafka, the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

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


class AiokafkaClient:
    name = "aiokafka"
    can = EVERYTHING
    compressions = ALL_COMPRESSIONS

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        producer = AIOKafkaProducer(
            **of_python(self._bootstrap),
            acks="all" if sending.acks is Acks.ALL else int(sending.acks),
            compression_type=None if sending.compression is Compression.NONE else str(sending.compression),
            enable_idempotence=sending.idempotent,
        )
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS), producer:
                futures = [
                    await producer.send(
                        message.topic,
                        value=message.value.encode(),
                        key=None if message.key is None else message.key.encode(),
                        headers=[(name, value.encode()) for name, value in message.headers],
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                answers = await asyncio.gather(*futures)
        except (KafkaError, TimeoutError) as error:
            raise ClientError(f"{self.name}: {error!r}") from error
        # With acks 0 there is no answer to wait for, and aiokafka gives None or an offset of -1.
        return [
            Delivery(message.value, message.topic, answer.partition, answer.offset if answer.offset >= 0 else None)
            if answer is not None
            else Delivery(message.value, message.topic)
            for message, answer in zip(messages, answers, strict=True)
        ]

    async def consume(self, reading: Reading) -> list[Received]:
        consumer = AIOKafkaConsumer(
            **of_python(self._bootstrap),
            group_id=reading.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=str(reading.isolation),
        )
        records: list[Received] = []
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS), consumer:
                if reading.pattern:
                    consumer.subscribe(pattern=reading.pattern)
                else:
                    consumer.subscribe(reading.topics)
                while len(records) < reading.count:
                    raw = await consumer.getone()
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
                ends = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
                await consumer.commit(ends)
        except (KafkaError, TimeoutError) as error:
            raise ClientError(f"{self.name}: {len(records)} of {reading.count} records, then {error!r}") from error
        return records

    async def copy(self, copying: Copying) -> None:
        consumer = AIOKafkaConsumer(
            copying.source,
            **of_python(self._bootstrap),
            group_id=copying.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        producer = AIOKafkaProducer(
            **of_python(self._bootstrap), transactional_id=copying.transactional_id, enable_idempotence=True
        )
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS), consumer, producer:
                await producer.begin_transaction()
                ends: dict[TopicPartition, int] = {}
                for _ in range(copying.count):
                    raw = await consumer.getone()
                    ends[TopicPartition(raw.topic, raw.partition)] = raw.offset + 1
                    for target in copying.targets:
                        await producer.send(target, value=raw.value, key=raw.key)
                await producer.send_offsets_to_transaction(ends, copying.group)
                await (producer.commit_transaction() if copying.commits else producer.abort_transaction())
        except (KafkaError, TimeoutError) as error:
            raise ClientError(f"{self.name}: {error!r}") from error


class AiokafkaAdmin:
    name = "aiokafka"
    can = EVERYTHING

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._started: AIOKafkaAdminClient | None = None

    async def create_topic(self, topic: str, partitions: int) -> None:
        # aiokafka cannot leave the replication factor to the broker.
        answer = await (await self._admin()).create_topics([NewTopic(topic, partitions, replication_factor=1)])
        self._check(error[1] for error in answer.topic_errors)

    async def delete_topic(self, topic: str) -> None:
        answer = await (await self._admin()).delete_topics([topic])
        self._check(error[1] for error in answer.topic_error_codes)

    async def topics(self) -> set[str]:
        return set(await (await self._admin()).list_topics())

    async def partitions(self, topic: str) -> int:
        (described,) = await (await self._admin()).describe_topics([topic])
        self._check([described["error_code"]])
        return len(described["partitions"])

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        (answer,) = await (await self._admin()).describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, _, _, _, entries),) = answer.resources
        self._check([code])
        return {entry[0]: entry[1] for entry in entries}

    async def brokers(self) -> set[str]:
        cluster = await (await self._admin()).describe_cluster()
        return {f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]}

    async def groups(self) -> set[str]:
        return {name for name, _ in await (await self._admin()).list_consumer_groups()}

    async def committed(self, group: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        offsets = await (await self._admin()).list_consumer_group_offsets(group)
        return {(at.topic, at.partition): found.offset for at, found in offsets.items() if at.topic in topics}

    async def close(self) -> None:
        if self._started is not None:
            await self._started.close()

    async def _admin(self) -> AIOKafkaAdminClient:
        if self._started is None:
            timeout_ms = int(OPERATION_TIMEOUT_SECONDS * 1000)
            self._started = AIOKafkaAdminClient(**of_python(self._bootstrap), request_timeout_ms=timeout_ms)
            await self._started.start()
        return self._started

    def _check(self, codes: Iterable[int]) -> None:
        for code in codes:
            if code:
                raise ClientError(f"{self.name}: {for_code(code)!r}")
