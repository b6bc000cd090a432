"""Topics of audit events, told as sidecars tell them, and what is in them by the ends of their logs."""

from __future__ import annotations

import json
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

PARTITIONS = 3
KAFKA_S = 60.0


class AuditTopic:
    """The audit topic of one cluster."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(KAFKA_S)

    def tell(self, events: int) -> None:
        """Returns when all are acknowledged."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20, "enable.idempotence": True})
        for number in range(events):
            event = {
                "id": str(uuid.uuid4()), "serviceId": "shop-1", "auditType": "PRODUCER", "topic": "orders",
                "partition": number % 12, "offset": number, "correlationId": str(uuid.uuid4()), "key": f"key-{number}",
                "auditStatus": "SUCCESS", "timestamp": 1_000 * (1_795_300_000 + number % 80_000),
            }  # fmt: skip
            producer.produce(self._topic, json.dumps(event), partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(KAFKA_S) == 0

    def places(self) -> set[tuple[int, int]]:
        """All partitions and offsets, by the ends of their logs."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "none"})
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(self._topic, number), KAFKA_S)[1]
                for number in range(PARTITIONS)
            ]
        finally:
            consumer.close()
        return {(number, offset) for number, end in enumerate(ends) for offset in range(end)}

    def clear(self) -> None:
        for future in self._admin.delete_topics([self._topic]).values():
            future.result(KAFKA_S)
