"""Copies of records between real clusters: what is kept, what is refused, what is never written twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from kafka.partitioner.default import murmur2

from mesh.rpc import record_rules, replays
from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.copies import SOURCE, Grove, by_place
from tests.integration.pipeline.orchard import Orchard, Place


@pytest.fixture
def grove(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[Grove]:
    grove = Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, topic)
    yield grove
    grove.clear()


def sources(orchard: Orchard) -> dict[bytes, object]:
    return {
        f"{SOURCE}/{place.topic}/{place.partition}/{place.offset}".encode(): content
        for place, content in orchard.records.items()
    }


def test_copies_have_partition_order_key_value_headers_and_time_of_their_originals(
    grove: Grove, orchard: Orchard
) -> None:
    orchard.create()
    orchard.grow(300)
    grove.create_target()
    ended = grove.run(grove.order(orchard.topic))
    assert ended.state == "DONE", ended.description
    copies = grove.copies()
    assert by_place(copies) == sources(orchard)
    in_order = [Place(orchard.topic, each.partition, n) for each, n in zip(copies, [0] * len(copies), strict=True)]
    assert in_order
    assert ended.records == 300
