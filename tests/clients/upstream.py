"""A real cluster without the mesh: where the tests make their topics and look up what was really stored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # at run time it does

from tests.clients.confluent.driver import received
from tests.clients.contract import OPERATION_TIMEOUT_SECONDS, Received
from tests.clients.entrances import of_librdkafka
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until


class Upstream:
    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self._login = of_librdkafka(bootstrap)
        self._admin = AdminClient(self._login)

    async def create_topic(self, topic: str, partitions: int) -> None:
        await _done(self._admin.create_topics([NewTopic(topic, partitions, replication_factor=-1)])[topic])
        await asyncio.to_thread(await_leaders, self._admin, topic, partitions)

    async def delete_topic(self, topic: str) -> None:
        await _done(self._admin.delete_topics([topic])[topic])

    async def wait_for_partitions(self, topic: str, count: int, within: float = OPERATION_TIMEOUT_SECONDS) -> None:
        """Returns when the cluster's metadata show the topic with so many partitions; 0 means without the topic.

        A controller answers before each broker has caught up, so looking once could be too early.
        """
        what = f"topic {topic!r} has {count} partitions on {self.name}"
        await asyncio.to_thread(wait_until, lambda: self._partitions(topic) == count, what, within)

    def _partitions(self, topic: str) -> int:
        topics = self._admin.list_topics(timeout=OPERATION_TIMEOUT_SECONDS).topics
        return len(topics[topic].partitions) if topic in topics else 0

    async def read(self, topic: str) -> list[Received]:
        """All committed records of the topic up to the end that it has now, in order within each partition."""
        return await asyncio.to_thread(self._read, topic)

    async def wait_for_committed(self, topic: str, count: int) -> None:
        """Returns when a reader of committed records finds so many.

        A coordinator answers EndTxn before its markers are in the logs, so reading once could be too early.
        """
        what = f"topic {topic!r} has {count} committed records on {self.name}"
        await asyncio.to_thread(wait_until, lambda: len(self._read(topic)) == count, what)

    async def write_transactions(self, topic: str, transactions: Mapping[str, bool]) -> None:
        """One transaction for each value: committed, or else aborted."""
        await asyncio.to_thread(self._write_transactions, topic, transactions)

    def _read(self, topic: str) -> list[Received]:
        consumer = Consumer(
            {
                **self._login,
                "group.id": "reads-without-group",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # the end is told when the broker has waited for more
                "auto.offset.reset": "error",
            }
        )
        records: list[Received] = []
        try:
            metadata = consumer.list_topics(topic, timeout=OPERATION_TIMEOUT_SECONDS)
            partitions = set(metadata.topics[topic].partitions)
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            while partitions:
                message = consumer.poll(OPERATION_TIMEOUT_SECONDS)
                if message is None:
                    raise TimeoutError(f"cluster {self.name}, topic {topic}: no answer; partitions left: {partitions}")
                if _is_end(message):
                    partitions.discard(message.partition() or 0)
                else:
                    records.append(received(message))
        finally:
            consumer.close()
        return records

    def _write_transactions(self, topic: str, transactions: Mapping[str, bool]) -> None:
        producer = Producer({**self._login, "transactional.id": f"writes-{topic}"})
        producer.init_transactions(OPERATION_TIMEOUT_SECONDS)
        for value, commits in transactions.items():
            producer.begin_transaction()
            producer.produce(topic, value=value, key=value)
            producer.flush(OPERATION_TIMEOUT_SECONDS)
            if commits:
                producer.commit_transaction(OPERATION_TIMEOUT_SECONDS)
            else:
                producer.abort_transaction(OPERATION_TIMEOUT_SECONDS)


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(error)


async def _done(future: Future[None]) -> None:
    await asyncio.wait_for(asyncio.wrap_future(future), OPERATION_TIMEOUT_SECONDS)
