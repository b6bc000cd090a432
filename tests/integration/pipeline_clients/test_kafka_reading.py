"""Bounded reading against a real cluster: what a range means, and what open transactions and compaction hold back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from services.pipeline.kafka import reader as kafka_reading
from services.pipeline.kafka.positions import (
    RecordsLostError,
    Span,
    Stamp,
    StreamError,
    TopicLog,
    advance,
    later_times,
    replaced_by_times,
)
from services.pipeline.kafka.ranges import Range
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.secured_kafka import PASSWORD, SecuredKafka
from tests.integration.pipeline.orchard import MIDNIGHT, Orchard

REQUEST_S = 60.0
STALL_S = 0.5
MILLISECOND = timedelta(milliseconds=1)


def offsets_of(batches: Iterable[kafka_reading.Batch]) -> list[int]:
    return [record.offset() for batch in batches for record in batch.records]


class Reading:
    """One topic of one cluster."""

    def __init__(self, kafka: KafkaCluster, topic: str) -> None:
        self.properties = {"bootstrap.servers": kafka.bootstrap}
        self.topic = topic

    def spans(self, **bounds: object) -> list[Span]:
        asked = Range(self.topic, **bounds)  # type: ignore[arg-type]
        return kafka_reading.read_bounds(self.properties, [asked], REQUEST_S)

    def offsets(self, span: Span, stall_s: float = REQUEST_S) -> list[int]:
        batches = kafka_reading.read_spans(self.properties, [span], stall_s)
        return offsets_of(batches)


@pytest.fixture
def reading(kafka_c1: KafkaCluster, orchard: Orchard) -> Reading:
    orchard.create(partitions=1)
    return Reading(kafka_c1, orchard.topic)


def test_bounds_are_offsets_or_times_or_what_there_is(reading: Reading, orchard: Orchard) -> None:
    orchard.grow(20, partitions=(0,))  # even ones after midnight, odd ones before, each a millisecond further away
    orchard.let_retention_take(partition=0, before=2)
    topic = orchard.topic
    assert reading.spans() == [Span(topic, 0, 2, 20)]
    assert reading.spans(start=5, end=7) == [Span(topic, 0, 5, 7)]
    assert reading.spans(start=MIDNIGHT + 9 * MILLISECOND) == [Span(topic, 0, 8, 20)]
    assert reading.spans(start=4, end=MIDNIGHT + 9 * MILLISECOND) == [Span(topic, 0, 4, 8)]
    assert reading.spans(start=MIDNIGHT + timedelta(days=1)) == [Span(topic, 0, 20, 20)]
    assert reading.spans(end=MIDNIGHT + timedelta(days=1)) == [Span(topic, 0, 2, 20)]
    assert reading.offsets(Span(topic, 0, 5, 7)) == [5, 6]


def test_what_can_not_be_read_is_told(reading: Reading, orchard: Orchard) -> None:
    orchard.grow(20, partitions=(0,))
    orchard.let_retention_take(partition=0, before=5)
    with pytest.raises(RecordsLostError, match=f"{orchard.topic}/0 begins at offset 5, 3 is asked for"):
        reading.spans(start=3)
    with pytest.raises(StreamError, match="ends at offset 20, it is to be read up to 21"):
        reading.spans(end=21)
    with pytest.raises(StreamError, match=r"has 1 partitions, no \[4\]"):
        reading.spans(partitions=frozenset({4}))
    with pytest.raises(RecordsLostError, match="does not hold offset 3 any more"):
        reading.offsets(Span(orchard.topic, 0, 3, 10))


def test_an_end_behind_an_open_transaction_is_waited_for(reading: Reading, orchard: Orchard) -> None:
    orchard.grow(10, partitions=(0,))
    still_open = orchard.transaction(5)  # offsets 10 to 14, then a marker
    assert reading.spans() == [Span(orchard.topic, 0, 0, 10)]
    (span,) = reading.spans(end=MIDNIGHT + timedelta(days=1))
    assert span.end == 15

    batches = kafka_reading.read_spans(reading.properties, [span], REQUEST_S)
    before: list[int] = []
    while len(before) < 10:
        before += offsets_of([next(batches)])
    assert before == list(range(10))
    orchard.commit(still_open)
    assert offsets_of(batches) == list(range(10, 15))


def test_an_end_behind_a_transaction_that_stays_open_fails_loudly(reading: Reading, orchard: Orchard) -> None:
    orchard.grow(10, partitions=(0,))
    still_open = orchard.transaction(5)
    with pytest.raises(StreamError, match=r"stands at offset 10 of 15 .* a transaction may be open"):
        reading.offsets(Span(orchard.topic, 0, 10, 15), STALL_S)
    still_open.abort_transaction()
    assert reading.offsets(Span(orchard.topic, 0, 0, 15)) == list(range(10))


def test_a_topic_that_is_created_again_is_known_by_its_times_where_ids_do_not_tell(
    reading: Reading, orchard: Orchard
) -> None:
    def logs() -> dict[str, TopicLog]:
        found = kafka_reading.read_logs(reading.properties, [reading.topic], REQUEST_S, with_last=True)
        return {topic: replace(log, topic_id="the name's") for topic, log in found.items()}

    def is_replaced() -> bool:
        times = later_times(position, [reading.topic])
        return bool(replaced_by_times(position, kafka_reading.read_since(reading.properties, times, REQUEST_S)))

    orchard.grow(20, partitions=(0,))
    position = advance({}, logs())
    assert position[reading.topic].last == {0: Stamp(18, int(MIDNIGHT.timestamp() * 1000) + 19)}
    orchard.grow(5, partitions=(0,))
    orchard.transaction(5).abort_transaction()
    assert not is_replaced()
    orchard.let_retention_take(partition=0, before=20)
    assert not is_replaced()

    orchard.delete()
    orchard.create(partitions=1)
    orchard.grow(50, partitions=(0,))
    assert advance(position, logs())[reading.topic].next == {0: 50}, "neither its id nor its end tells"
    assert is_replaced()


def test_a_secured_cluster_is_read_and_a_wrong_password_is_told_without_it(
    secured: SecuredKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.pipeline.kafka.clusters import set_clusters

    monkeypatch.setenv("PASSWORD_OF_MINE", PASSWORD)
    orchard = Orchard(secured.bootstrap, topic)
    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    way = secured.way("SCRAM-SHA-512 over tls", password="${env:PASSWORD_OF_MINE}")
    cluster = set_clusters({"c1": {"bootstrap.servers": way.bootstrap, **way.properties}})["c1"]
    (span,) = kafka_reading.read_bounds(cluster.properties, [Range(topic)], REQUEST_S)
    assert offsets_of(kafka_reading.read_spans(cluster.properties, [span], REQUEST_S)) == list(range(10))

    wrong = {**cluster.properties, "sasl.password": "not it"}
    with pytest.raises(StreamError, match="Authentication failed") as failure:
        kafka_reading.read_logs(wrong, [topic], 10.0)
    assert "not it" not in str(failure.value)
