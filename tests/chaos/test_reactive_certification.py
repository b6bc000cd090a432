"""Records that a sidecar pushes, in the manner of Dapr's certification; the whole of it is in tests/soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.faltering_backend import ERRORS
from tests.fixtures.keyed_load import KeyedLoad
from tests.fixtures.reactive_under_trouble import PushGroup, make_topic

PARTITIONS = 4
KEYS = 20
AHEAD = 200
RECORDS = 1_000


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_records_come_in_order_and_repeats_are_explained_through_errors_a_kill_and_a_rebalance(
    kafka_c1: KafkaCluster, topic: str, group: str, tmp_path: Path
) -> None:
    bootstrap = kafka_c1.bootstrap
    make_topic(bootstrap, topic, PARTITIONS, 1)
    pushed = PushGroup(group, bootstrap, topic, PARTITIONS, tmp_path)
    load = KeyedLoad(bootstrap, topic, KEYS, AHEAD, lambda: len(pushed.backend.processed))
    with pushed.running(), load.running():
        pushed.start("a")
        pushed.goes_on()
        pushed.joins("b")
        pushed.goes_on()
        pushed.is_killed("a")
        pushed.goes_on()
        pushed.leaves("b")
        balance = pushed.balance(load.finish(RECORDS))
    print(balance)
    assert pushed.backend.ways.keys() >= set(ERRORS)
    assert balance.repeats, "answers were lost, so something came again"
