"""Share groups of a stitched topic read all parts: no record is missed over a cut, and each is acknowledged."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka import Producer

from mesh.routing import UpstreamCluster
from mesh.stitches import LogPart
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
from tests.integration.gateway.test_stitched_logs import (
    EARLIEST,
    LATEST,
    PARTITIONS,
    STRANGE,
    Stitched,
    offsets,
    strange,
)

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


@pytest.fixture(params=["one port", "a port for each node"])
def shared(
    request: pytest.FixtureRequest,
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
    first = free_block(3)
    ports = () if request.param == "one port" else (f"101={first + 1} 102={first + 2}",)
    gateway = start_gateway(rules.to("c1", [topic]), listen=f"127.0.0.1:{first}", node_ports=ports)
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


def test_javas_members_miss_nothing_over_cuts_under_load(shared: Shared, group: str) -> None:
    """There and back. A client that sees a new leader gives up what it has acquired, as on one cluster: then the record
    comes again, with a higher count of deliveries.
    """
    shared.groups = [group]
    set_up(shared.address, group, **SHORT_LOCKS)
    values = [f"v {number}" for number in range(1200)]
    with ThreadPoolExecutor(2) as background:
        running = background.submit(run_member, "share", shared.address, group, [shared.topic], len(values))
        writing = Writing(shared.address, shared.topic, values)
        background.submit(writing.run)
        for count, cluster in ((300, "c2"), (600, "c1"), (900, "c2")):
            writing.wait_for(count)
            shared.cut(cluster)
        told: Told = running.result(150)
    assert writing.faults == []
    assert set(told.values) == set(values)
    deliveries = [(line[1], int(line[2])) for line in told.lines if line[0] == "delivery"]
    again = {value for value, count in Counter(told.values).items() if count > 1}
    assert again <= {value for value, count in deliveries if count > 1}


@pytest.mark.parametrize("shared", ["one port"], indirect=True)
def test_records_that_a_killed_member_has_acquired_in_the_old_part_come_to_another_one(
    shared: Shared, group: str
) -> None:
    shared.groups = [group]
    set_up(shared.address, group, **SHORT_LOCKS)
    produce(shared.address, shared.topic, sorted(batch(0)))
    with subprocess.Popen(
        [sys.executable, "-c", ACQUIRES, shared.address, group, shared.topic], stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout is not None
            acquired = set(json.loads(other.stdout.readline()))
            shared.cut("c2")
            produce(shared.address, shared.topic, sorted(batch(1)))
        finally:
            other.kill()
    assert acquired
    told = run_member("share", shared.address, group, [shared.topic], 2 * COUNT)
    assert sorted(told.values) == sorted(batch(0) | batch(1))
    deliveries = {line[1]: int(line[2]) for line in told.lines if line[0] == "delivery"}
    assert {value for value, count in deliveries.items() if count > 1} == acquired


ACQUIRES = """
import json, sys, time
from confluent_kafka import ShareConsumer
address, group, topic = sys.argv[1:]
consumer = ShareConsumer(
    {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"}
)
consumer.subscribe([topic])
found = []
while not found:
    found = [message.value().decode() for message in consumer.poll(0.5) if message.error() is None]
print(json.dumps(found), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("shared", ["one port"], indirect=True)
def test_the_starts_and_the_lag_of_a_group_are_those_of_the_whole_log(shared: Shared, group: str) -> None:
    shared.groups = [group]
    set_up(shared.address, group)
    tools = ConsoleTools(shared.address)
    produce(shared.address, shared.topic, sorted(batch(0)))
    run_member("share", shared.address, group, [shared.topic], COUNT)
    assert lags(tools, group) == {shared.topic: 0}
    shared.cut("c2")
    produce(shared.address, shared.topic, sorted(batch(1)))
    assert lags(tools, group) == {shared.topic: COUNT}
    change = ("--reset-offsets", "--execute", "--group", group, "--topic", shared.topic)
    asyncio.run(tools.run(Tool.SHARE_GROUPS, *change, "--to-earliest"))
    assert lags(tools, group) == {shared.topic: 2 * COUNT}
    assert starts(tools, group) == shared.offsets(EARLIEST)
    told = run_member("share", shared.address, group, [shared.topic], 2 * COUNT)
    assert sorted(told.values) == sorted(batch(0) | batch(1))

    produce(shared.address, shared.topic, sorted(batch(2)))
    asyncio.run(tools.run(Tool.SHARE_GROUPS, *change, "--to-latest"))
    assert starts(tools, group) == shared.offsets(LATEST)
    assert lags(tools, group) == {shared.topic: 0}
    produce(shared.address, shared.topic, sorted(batch(3)))
    told = run_member("share", shared.address, group, [shared.topic], COUNT)
    assert sorted(told.values) == sorted(batch(3))
    asyncio.run(tools.run(Tool.SHARE_GROUPS, "--delete-offsets", "--group", group, "--topic", shared.topic))
    assert lags(tools, group) == {}


@pytest.mark.parametrize("shared", ["one port"], indirect=True)
def test_new_records_come_while_the_old_cluster_stands_still(
    shared: Shared, group: str, kafka_c1: KafkaCluster
) -> None:
    shared.groups = [group]
    for side in shared.clusters.values():
        set_up(side.bootstrap, group, **SHORT_LOCKS)
    produce(shared.address, shared.topic, sorted(batch(0)))
    with closing(Member(shared.address, group, [shared.topic])) as member:
        poll_until("the member is there", lambda: None if member.accepted else "nothing", member)
        shared.cut("c2")
        with kafka_c1.frozen():
            produce(shared.address, shared.topic, sorted(batch(1)))
            poll_until("the new records come", lambda: missing(batch(1), member), member)
        poll_until("the old ones come", lambda: missing(batch(0) | batch(1), member), member)


def starts(tools: ConsoleTools, group: str) -> list[int]:
    described = asyncio.run(tools.run(Tool.SHARE_GROUPS, "--describe", "--group", group))
    found = re.findall(rf"^{re.escape(group)}\s+\S+\s+(\d+)\s+(\d+)", described, re.MULTILINE)
    return [int(start) for _, start in sorted(found)]


class Writing:
    """Writes values at a steady rate, in order."""

    def __init__(self, bootstrap: str, topic: str, values: Collection[str]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "enable.idempotence": True})
        self._topic, self._values = topic, values
        self.acknowledged = 0
        self.faults: list[str] = []

    def run(self) -> None:
        for value in self._values:
            self._producer.produce(self._topic, value, value, on_delivery=self._hear)
            self._producer.poll(0.01)
        if self._producer.flush(60):
            self.faults.append("records were not delivered in time")

    def wait_for(self, count: int) -> None:
        wait_until(lambda: self.acknowledged >= count, f"{count} records are written")

    def _hear(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.faults.append(str(error))
