"""A judge finds what a faulty gateway would do: lies stand between its own client and real Kafka."""

from __future__ import annotations

import pytest

from judge.anomalies import judged
from judge.faults.cable import Cables
from judge.plan import Client, planned
from judge.protocol.connection import address
from judge.run import Run
from judge.systems.system import System
from tests.fixtures.clusters import KafkaCluster
from tests.judge.liars import OFTEN, Liar, Lie

SECONDS = 60.0
"""Bound of a run, on a busy machine."""
MORE = 150
"""Operations after the lies: some of them see one."""
MANY = 10
"""Lies that show only where something else meets them."""
EACH_TIME = {Lie.DROP, Lie.REPEAT, Lie.GAP, Lie.STORED_AFTER_ALL, Lie.TEAR}
"""The others take longer: `make soak` has them."""
SHOWS_AS = {
    Lie.DROP: {"lost-write", "unseen"},
    Lie.REPEAT: {"duplicate"},
    Lie.WRONG_OFFSET: {"inconsistent-offsets"},
    Lie.SWAP: {"inconsistent-offsets"},
    Lie.GAP: {"int-poll-skip"},
    Lie.BACK: {"int-nonmonotonic-poll", "nonmonotonic-poll"},
    Lie.ALTER: {"altered"},
    Lie.STORED_AFTER_ALL: {"G1a"},
    Lie.TEAR: {"torn-transaction", "unseen"},
    Lie.COMMIT_ABORTED: {"G1a"},
    Lie.FORGET_END: {"unseen"},
    Lie.FORGET_COMMIT: {"lost-commit"},
}


@pytest.mark.parametrize("lie", [pytest.param(lie, marks=() if lie in EACH_TIME else pytest.mark.soak) for lie in Lie])
def test_a_lie_is_found(lie: Lie, kafka_c1: KafkaCluster) -> None:
    system = System("Kafka behind a liar", (address(kafka_c1.bootstrap),))
    seed = 1000 + list(Lie).index(lie)
    plan = planned(seed, clients=[Client.OWN], moves=False, late=False)
    liars: list[Liar] = []
    since: list[int] = []

    def enough(operations: int) -> bool:
        if sum(len(liar.lies) for liar in liars) >= (MANY if lie in OFTEN else 1):
            since.append(operations)
        return bool(since) and operations >= since[0] + MORE

    def make(to: tuple[str, int]) -> Liar:
        liars.append(Liar(to, lie=lie))
        return liars[-1]

    run = Run(plan, system, SECONDS, shake=False, cables=Cables(make), enough=enough)
    history = run.judged_history()
    assert any(liar.lies for liar in liars), "nothing was planted"
    found = {anomaly.rule for anomaly in judged(history) if not anomaly.allowed}
    assert found & SHOWS_AS[lie], (found, [liar.lies[:3] for liar in liars])


def test_nothing_is_found_where_nobody_lies(kafka_c1: KafkaCluster) -> None:
    system = System("Kafka", (address(kafka_c1.bootstrap),))
    plan = planned(7, clients=[Client.OWN], moves=False, late=False)
    enough = lambda operations: operations >= 2 * MORE  # noqa: E731
    history = Run(plan, system, SECONDS, shake=False, enough=enough).judged_history()
    assert [anomaly for anomaly in judged(history) if not anomaly.allowed] == []
