"""Two routers and a mirror, without control: the router that runs it is killed, the other one goes on, exactly once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.router.conftest import StartRouter
from tests.integration.router.mirrored import WITHIN_S, Mirrored, mirrored_topic
from tests.integration.router.parts import PublishedLog


@pytest.fixture
def mirrored(
    log: PublishedLog, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> Iterator[Mirrored]:
    with mirrored_topic(log, kafka_c1, kafka_c2, unique_name("mirrored")) as made:
        yield made


def test_a_mirror_goes_on_whichever_router_stops_or_is_killed(mirrored: Mirrored, start_router: StartRouter) -> None:
    routers = [start_router("r1"), start_router("r2")]
    with mirrored.load():
        first, heir = mirrored.owner_and_other(routers)
        first.stop()
        wait_until(lambda: mirrored.written_by(heir) > 0, "the other router goes on", WITHIN_S)

        first.start()
        wait_until(lambda: first.ready() == "ready", "the first one is back", WITHIN_S)
        wait_until(lambda: first.metric("record_rule_partitions") > 0, "the routers share the rules", WITHIN_S)
        second, heir = mirrored.owner_and_other(routers)
        second.stop(signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: mirrored.written_by(heir) > 0, "the other router goes on", WITHIN_S)
        print(f"the other router has gone on {time.monotonic() - killed:.1f} s after the kill")
    wait_until(mirrored.has_all, "each record is there once, in its place", WITHIN_S)
