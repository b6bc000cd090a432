"""What an operator sees of a mirror at the router's /metrics: that it lives, how far behind it is, that it is stuck."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mesh.rpc import events
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import mirror
from tests.fixtures.waiting import wait_until
from tests.integration.router.conftest import StartRouter
from tests.integration.router.mirrored import WITHIN_S, Mirrored, mirrored_topic
from tests.integration.router.parts import PublishedLog, ServiceProcess

SILENCE_S = 3.0
"""More than between two words of a worker that lives."""


@pytest.fixture
def mirrored(
    log: PublishedLog, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> Iterator[Mirrored]:
    with mirrored_topic(log, kafka_c1, kafka_c2, unique_name("measured")) as made:
        yield made


def test_heartbeat_and_lag_of_a_mirror_are_measured(mirrored: Mirrored, start_router: StartRouter) -> None:
    router = start_router("r1")
    mirrored.c1.write(mirrored.topic, [(0, b"as it is")] * 5)
    wait_until(lambda: mirrored.written_by(router) == 5, "all are copied", WITHIN_S)
    wait_until(lambda: measured(mirrored, router, "lag_records", "problem") == [0, 0], "nothing is left", WITHIN_S)

    strict = mirror(mirrored.rule_id, mirrored.topic, source="real-c1", target="real-c2", filter="value.amount > 1")
    mirrored.decide(record_rule_updated=events.RecordRuleUpdated(rule=strict))
    written = 5

    def is_stuck() -> bool:
        """The change is on its way; until it counts, what is no JSON is copied, too."""
        nonlocal written
        mirrored.c1.write(mirrored.topic, [(0, b"no JSON")])
        written += 1
        return measured(mirrored, router, "problem") == [1]

    wait_until(is_stuck, "the rule stops in front of what it cannot judge", WITHIN_S)

    def is_told() -> bool:
        waiting = written - mirrored.written_by(router)
        return waiting > 0 and measured(mirrored, router, "lag_records", "problem") == [waiting, 1]

    wait_until(is_told, "the lag is told", WITHIN_S)

    worker = int(Path(f"/proc/{router.pid}/task/{router.pid}/children").read_text().split()[0])
    os.kill(worker, signal.SIGSTOP)
    try:
        wait_until(lambda: silence(mirrored, router) > SILENCE_S, "its silence shows", WITHIN_S)
    finally:
        os.kill(worker, signal.SIGCONT)
    wait_until(lambda: silence(mirrored, router) < SILENCE_S, "it speaks again", WITHIN_S)


def test_every_router_measures_how_far_each_rule_is(mirrored: Mirrored, start_router: StartRouter) -> None:
    routers = [start_router("r1"), start_router("r2")]
    strict = mirror(mirrored.rule_id, mirrored.topic, source="real-c1", target="real-c2", filter="value.amount > 1")
    mirrored.decide(record_rule_updated=events.RecordRuleUpdated(rule=strict))

    def is_stuck() -> bool:
        mirrored.c1.write(mirrored.topic, [(0, b"no JSON")])
        return all(router.metric("mesh_record_rule_problem{") == 1 for router in routers)

    wait_until(is_stuck, "both routers know that the rule is stuck", WITHIN_S)
    lags = wait_until(lambda: lags_known(routers), "both routers know how far it is behind", WITHIN_S)
    assert len(lags) == 1


def lags_known(routers: list[ServiceProcess]) -> set[float]:
    """What the routers say; nothing until they say the same, and the rule is behind."""
    lags = {router.metric("mesh_record_rule_lag_records{") for router in routers}
    return lags if len(lags) == 1 and lags != {0} else set()


def measured(mirrored: Mirrored, router: ServiceProcess, *names: str) -> list[float]:
    return [router.metric(f'record_rule_{name}{{rule="{mirrored.rule_id}"}}') for name in names]


def silence(mirrored: Mirrored, router: ServiceProcess) -> float:
    [seconds] = measured(mirrored, router, "heartbeat_age_seconds")
    return seconds
