"""Routers and their workers are killed and stopped at random while a mirror runs: each record is there once.

`MESH_REPEAT` says how often; `MESH_SEED`, which it prints, repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from functools import partial

import psutil
import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import ends
from tests.fixtures.waiting import wait_until
from tests.integration.router.conftest import (  # noqa: F401  # its fixtures
    StartRouter,
    control_port,
    home,
    log,
    start_router,
)
from tests.integration.router.mirrored import WITHIN_S, Mirrored, mirrored_topic
from tests.integration.router.parts import PublishedLog, ServiceProcess

ROUNDS = int(os.environ.get("MESH_REPEAT", "20"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))


def _copied(mirrored: Mirrored) -> int:
    return sum(end for _, end in ends(mirrored.c2, mirrored.topic).items())


def _has_more_than(mirrored: Mirrored, offset: int) -> bool:
    return _copied(mirrored) > offset


def kill_worker(router: ServiceProcess) -> None:
    for worker in psutil.Process(router.pid).children():
        worker.kill()


def kill(router: ServiceProcess) -> None:
    router.stop(signal.SIGKILL)
    router.start()


def restart(router: ServiceProcess) -> None:
    wait_until(lambda: router.ready() == "ready", "the router can be stopped in order", WITHIN_S)
    router.stop()
    router.start()


@pytest.mark.timeout(ROUNDS * 60 + 120)
def test_a_mirror_outlives_routers_and_workers_that_are_killed_at_random(
    log: PublishedLog,  # noqa: F811
    start_router: StartRouter,  # noqa: F811
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
) -> None:
    print(f"MESH_SEED={SEED}")
    chance = random.Random(SEED)
    with mirrored_topic(log, kafka_c1, kafka_c2, unique_name("mirrored")) as mirrored:
        routers = [start_router("r1"), start_router("r2")]
        done: list[str] = []
        with mirrored.load():
            for _ in range(ROUNDS):
                end = _copied(mirrored)
                harm, router = chance.choice([kill_worker, kill, restart]), chance.choice(routers)
                done.append(harm.__name__)
                harm(router)
                wait_until(
                    partial(_has_more_than, mirrored, end + 100),
                    f"records flow again after {', '.join(done)} (MESH_SEED={SEED})",
                    WITHIN_S,
                )
        wait_until(mirrored.has_all, f"each record is there once (MESH_SEED={SEED})", WITHIN_S)
