"""Plain Kafka as the baseline: a write of an aborted transaction that arrives late is in the next one (KIP-890).

The judge's own producer speaks the transactions of before KIP-890 (V1), as old clients do with brokers of any age.
"""

from __future__ import annotations

import pytest

from judge.anomalies import judged
from judge.plan import Client, planned
from judge.protocol.connection import address
from judge.report import Report
from judge.run import Run
from judge.systems.system import System
from tests.fixtures.clusters import KafkaCluster

SECONDS = 240.0
"""A busy machine takes longer to come to so many operations."""
ENOUGH = 300
LATE_SEEDS = (5,)


@pytest.mark.timeout(480)
@pytest.mark.parametrize("seed", LATE_SEEDS)
def test_plain_kafka_shows_an_aborted_write_that_came_late_by_the_old_protocol(
    seed: int, kafka_c1: KafkaCluster
) -> None:
    system = System("Kafka", (address(kafka_c1.bootstrap),))
    plan = planned(seed, clients=[Client.OWN], moves=False, late=True)
    enough = lambda operations: operations >= ENOUGH  # noqa: E731
    history = Run(plan, system, SECONDS, shake=False, enough=enough).judged_history()
    by_index = {each.index: each for each in history.operations}
    found = [each for each in judged(history) if each.rule == "G1a"]
    assert found, "no late write was seen"
    assert all(by_index[each.operations[0]].note == "meant to abort, written late" for each in found)
    others = Report(history, tuple(each for each in judged(history) if each.rule != "G1a"))
    assert not others.bad, others.failures()
