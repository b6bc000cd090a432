"""A compacted topic is read to its end: offsets that Kafka's cleaner took are passed over, wherever a span ends."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from services.pipeline.kafka.positions import Span
from services.pipeline.kafka.ranges import Range
from services.pipeline.kafka.reader import read_bounds, read_spans
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until

KEYS = 10
REQUEST_S = 30.0
CLEANED_S = 240.0  # the cleaner looks every 15 s
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
}


@pytest.mark.timeout(400)
def test_it_is_read_to_its_end_from_anywhere(kafka_c1: KafkaCluster, topic: str) -> None:
    properties = {"bootstrap.servers": kafka_c1.bootstrap}
    admin = AdminClient({**properties})
    admin.create_topics([NewTopic(topic, 1, 1, config=COMPACTED)])[topic].result(REQUEST_S)
    producer = Producer({**properties})

    def write() -> None:
        for number in range(KEYS):
            producer.produce(topic, b"value", b"key %d" % number, partition=0)
        assert producer.flush(REQUEST_S) == 0

    def offsets(span: Span) -> list[int]:
        return [record.offset() for batch in read_spans(properties, [span], REQUEST_S) for record in batch.records]

    def has_holes() -> bool:
        write()  # only what is not in the last segment is cleaned
        (whole,) = read_bounds(properties, [Range(topic)], REQUEST_S)
        return len(offsets(whole)) <= whole.end - KEYS

    def readings() -> tuple[list[int], int, dict[str, list[int]]] | None:
        """All that is left, a hole, and what spans around it have; None when it was cleaned meanwhile."""
        (whole,) = read_bounds(properties, [Range(topic)], REQUEST_S)
        left = offsets(whole)
        hole = next(offset for offset in range(left[-1]) if offset not in left)
        beyond = next(offset for offset in left if offset > hole)
        read = {
            "into the hole": offsets(Span(topic, 0, 0, hole + 1)),
            "from the hole": offsets(Span(topic, 0, hole, beyond + 1)),
            "up to its end": offsets(Span(topic, 0, 0, beyond)),
        }
        return (left, hole, read) if offsets(whole) == left else None

    try:
        wait_until(has_holes, "the cleaner has taken a round of records", CLEANED_S)
        left, hole, read = wait_until(readings, "nothing is cleaned while it is read", CLEANED_S)
        before = [offset for offset in left if offset < hole]
        assert left == sorted(set(left))
        assert read == {
            "into the hole": before,
            "from the hole": [next(offset for offset in left if offset > hole)],
            "up to its end": before,
        }
    finally:
        admin.delete_topics([topic])[topic].result(REQUEST_S)
