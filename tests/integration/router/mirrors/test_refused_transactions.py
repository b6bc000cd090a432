"""A target ends its wait for a transaction as soon as a record of the transaction is refused."""

from __future__ import annotations

import os
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from services.router.forwarding import upkeep
from services.router.forwarding.connections import Cluster
from services.router.forwarding.lanes import Lane
from services.router.forwarding.memory import Memory, SourcePartition
from services.router.forwarding.points import Points
from services.router.forwarding.target import Target
from tests.fixtures.record_rules import Side
from tests.fixtures.sweeps import REPEAT

TRANSACTIONS = 20 * REPEAT
"""In one of ten, librdkafka keeps a record that was produced at the moment of the refusal until its time-out."""
SOON_S = 15
"""Well below the delivery time-out."""
MOST_RECORDS = 1_000_000
"""More than the queue of a producer holds: the writes wait for a slow broker, whose refusal comes long before."""


def test_no_transaction_waits_for_the_delivery_time_out_behind_a_batch_that_is_too_large(c2: Side, topic: str) -> None:
    c2.create(topic, max_message_bytes="200000")
    values = [os.urandom(500) for _ in range(1000)]
    cluster = Cluster(c2.spec, "apples")
    upkeep.ensure_positions(cluster, cluster.metadata())
    for _ in range(TRANSACTIONS):
        assert _seconds_to_settle(cluster, topic, values) < SOON_S


def _seconds_to_settle(cluster: Cluster, topic: str, values: list[bytes]) -> float:
    """Writes a transaction until a refusal comes between two of its records, then settles it."""
    target = Target(cluster, Memory(topic, "apples", 11), topic, largest_batch=500_000)
    target.take_over()
    lane = Lane(SourcePartition(topic, 0), topic, 0, [0], Points())
    target.begin()
    with pytest.raises(KafkaException, match="Erroneous state"):
        for number in range(MOST_RECORDS):
            target.write(topic, values[number % len(values)], None, 0, lane.arrived, 0, [])
    began = time.monotonic()
    target.settle(lambda: lane.is_refused)
    seconds = time.monotonic() - began
    assert lane.failure.code() == KafkaError.MSG_SIZE_TOO_LARGE
    target.close()
    return seconds
