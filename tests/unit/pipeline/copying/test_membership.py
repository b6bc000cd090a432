"""What transactions say of a group is what librdkafka's own consumers hand out."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from services.pipeline.copying.notes import nobody_of


@pytest.mark.parametrize("group", ["mesh-replay-7", "of Tübingen"])
def test_nobody_of_a_group_is_what_a_consumer_says_that_has_not_joined_it(group: str) -> None:
    consumer = Consumer({"group.id": group})  # which knows no broker
    try:
        assert consumer.consumer_group_metadata() == nobody_of(group)
    finally:
        consumer.close()
