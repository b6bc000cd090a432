"""Producing and reading back with librdkafka, in the words of the tests."""

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

DELIVERY_S = 60.0
READ_S = 0.02
"""A call of `consume` waits so long for more records, however many it has."""


def produce(bootstrap: str, topic: str, values: Iterable[str], **config: Any) -> Producer:
    """Produce in order with key = value; fails on the first record that is not delivered.

    Without acks the producer is to be kept until all is stored: when it goes it may leave an answer unread, about
    telemetry say, and then the system drops what is still on its way.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    faults: list[KafkaError] = []
    for value in values:
        producer.produce(topic, value, value, on_delivery=lambda error, _: faults.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(DELIVERY_S) == 0, "records were not delivered in time"
    assert not faults, faults[:3]
    return producer


def read(consumer: Consumer, count: int) -> list[str]:
    """So many records from a consumer that has subscribed."""
    found: list[str] = []
    deadline = time.monotonic() + DELIVERY_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        found += [(m.value() or b"").decode() for m in consumer.consume(1000, READ_S) if m.error() is None]
    return found


def read_all(bootstrap: str, topic: str, **config: Any) -> list[str]:
    """Every record of a topic from its beginning to its end as of now, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-of-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in partitions}
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: list[str] = []
        at = dict.fromkeys(partitions, 0)
        deadline = time.monotonic() + DELIVERY_S
        while any(at[p] < ends[p] for p in partitions):
            assert time.monotonic() < deadline, f"read {at} of {ends}"
            for message in consumer.consume(1000, READ_S):
                assert message.error() is None, message.error()
                found.append((message.value() or b"").decode())
                at[message.partition() or 0] = (message.offset() or 0) + 1
        return found
    finally:
        consumer.close()
