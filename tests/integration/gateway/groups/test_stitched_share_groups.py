"""Share groups of a stitched topic read all parts: no record is missed over a cut, and each is acknowledged where it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from mesh.routing import UpstreamCluster
from mesh.stitches import LogPart, StitchedLog
from services.control.upstream.share_starts import set_share_starts, share_starts
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.groups.test_share_groups import Member, lags, missing, poll_until
from tests.integration.gateway.member import Told, run_member
from tests.integration.gateway.records import produce
from tests.integration.gateway.running import Rules
from tests.integration.gateway.sharing import set_up
from tests.integration.gateway.test_moves import SteadyProducer, wait_for_progress
from tests.integration.gateway.test_stitched_logs import LATEST, PARTITIONS, STRANGE, Stitched, offsets, strange

COUNT = 40
SHORT_LOCKS = {"share.record.lock.duration.ms": "15000"}


def batch(number: int) -> set[str]:
    return {f"{number} {n}" for n in range(COUNT)}


class Shared(Stitched):
    """As `Stitched`; a cut also gives share groups their starts, as control does it."""

    groups: Collection[str] = ()

    def cut(self, cluster: str) -> None:
        asyncio.run(self._give_starts(cluster))
        super().cut(cluster)

    async def _give_starts(self, cluster: str) -> None:
        side = UpstreamCluster(cluster, (self.clusters[cluster].bootstrap,), int(cluster[1:]))
        bases = dict(enumerate(offsets(self.clusters[cluster].bootstrap, self.topic, LATEST)))
        known = await share_starts(side, self.topic, self.groups)
        for group in self.groups:
            if any(part.cluster == cluster for part in self.parts):
                assert all(start <= bases[number] for number, start in known.get(group, {}).items())
            else:
                await set_share_starts(side, self.topic, group, bases)


@pytest.fixture
def shared(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
) -> Shared:
    topic = unique_name("apples")
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster, topic, PARTITIONS)
    gateway = start_gateway(rules.to("c1", [topic]), listen=f"127.0.0.1:{free_block(1)}")
    none = (0,) * PARTITIONS
    clusters = {"c1": kafka_c1, "c2": kafka_c2}
    shared = Shared(topic, gateway, rules, clusters, [LogPart("c1", topic, 1, none, none)])
    strange(kafka_c2, topic, STRANGE)
    return shared


def test_a_group_reads_what_is_left_of_the_old_part_and_what_comes_in_the_new_one(shared: Shared, group: str) -> None:
    """By librdkafka; each record is accepted once, whichever cluster has it."""
    shared.groups = [group]
    set_up(shared.address, group, **SHORT_LOCKS)
    produce(shared.address, shared.topic, sorted(batch(0)))
    with closing(Member(shared.address, group, [shared.topic])) as member:
        poll_until("the first are accepted", lambda: missing(batch(0), member), member)
    produce(shared.address, shared.topic, sorted(batch(1)))
    shared.cut("c2")
    produce(shared.address, shared.topic, sorted(batch(2)))
    shared.cut("c1")
    produce(shared.address, shared.topic, sorted(batch(3)))
    everything = batch(0) | batch(1) | batch(2) | batch(3)
    with closing(Member(shared.address, group, [shared.topic])) as member:
        poll_until("the others are accepted", lambda: missing(everything - batch(0), member), member)
        assert member.faults == []
        assert sorted(member.accepted) == sorted(everything - batch(0))
