"""The home cluster is lost for ever, and another one takes its place, as docs/how-to/recover-from-loss.md says.

Two controls, two routers and two gateways as processes. Clients of a topic on the other cluster go on through all of
it; the topic of the lost cluster is served again at the end.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from mesh.rpc import admin
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.pages import ROOT, commands, section_of, steps
from tests.fixtures.two_of_everything import TwoOfEverything
from tests.fixtures.waiting import until
from tests.integration.control.world import create_topic, log_in_kafka
from tests.integration.gateway.gateways import Turns
from tests.integration.router.parts import ServiceProcess

PAGE = ROOT / "docs" / "how-to" / "recover-from-loss.md"
WITHIN_S = 120.0
CLIENTS = ("confluent", "java-4.4")


@pytest.fixture
def doomed(kafka_jars: None, tmp_path: Path) -> Iterator[KafkaCluster]:
    """The home cluster, which the test destroys."""
    cluster = KafkaCluster("doomed", tmp_path / "doomed")
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.mark.timeout(600)
async def test_another_cluster_becomes_the_home_while_clients_of_the_rest_go_on(
    doomed: KafkaCluster,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    postgres: PostgresServer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    kept, lost, events_topic = unique_name("kept"), unique_name("orders.lost"), unique_name("events")
    create_topic(kafka_c2.bootstrap, kept, 2)
    create_topic(doomed.bootstrap, lost, 2)
    async with TwoOfEverything(postgres.migrated(), doomed, kafka_c2, events_topic, tmp_path) as mesh:
        await mesh.moves(kept, "c2")
        await decide(mesh, "meshctl rule set --prefix orders. --to c1")
        await mesh.start_gateways()
        turns = Turns([each.address for each in mesh.gateways])
        try:
            produce(turns.address, lost, "before")
            load = await TopicUnderLoad.start_of(turns.address, kept, f"{kept}-readers", CLIENTS)
            try:
                await _recover(mesh, doomed, kafka_c1, load, events_topic, lost)
            finally:
                await load.stop()
            await load.check([Upstream("c2", kafka_c2.bootstrap)])
            create_topic(turns.address, lost, 2)
            produce(turns.address, lost, "after")
        finally:
            turns.close()
    assert [record.value for record in await Upstream("c2", kafka_c2.bootstrap).read(lost)] == ["after"]


async def _recover(
    mesh: TwoOfEverything,
    doomed: KafkaCluster,
    home: KafkaCluster,
    load: TopicUnderLoad,
    events_topic: str,
    lost: str,
) -> None:
    before = await mesh.status()
    load.expect_lost_connections()
    doomed.kill()
    await load.progress()

    for process in (*mesh.controls, *mesh.routers):  # the steps of the page from here on
        await asyncio.to_thread(process.stop, signal.SIGTERM)
    await load.progress()
    for process in (*mesh.controls, *mesh.routers, *mesh.gateways):
        process.change(HOME_BOOTSTRAP_SERVERS=home.bootstrap)
    for process in mesh.controls:
        process.start()

    async def published() -> bool:
        return (await mesh.status()).published_position >= before.last_position

    await until(published, "control publishes its log on the new home", WITHIN_S)
    for process in mesh.routers:
        process.start()
    await mesh.is_well()
    events = await asyncio.to_thread(log_in_kafka, home.bootstrap, events_topic, before.last_position)
    assert [event.position for event in events] == list(range(1, before.last_position + 1))
    await load.progress()
    for process in mesh.gateways:  # one by one: for transactions, they know the home cluster from their start
        await restarted(mesh, process)
    await load.progress()

    (step,) = steps(section_of(PAGE, "The home cluster is lost"))
    (command,) = commands(step.typed)
    await decide(mesh, command)

    async def all_run_it() -> bool:
        status = await mesh.status()
        gateways = [each for each in status.members if each.kind == admin.MEMBER_KIND_GATEWAY]
        return len(gateways) == len(mesh.gateways) and {each.revision for each in gateways} == {status.revision}

    await until(all_run_it, f"all gateways run the rule for {lost}", WITHIN_S)
    assert (await mesh.status()).revision > before.revision
    await load.progress()


async def decide(mesh: TwoOfEverything, command: str) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", *shlex.split(command)],
        env={**os.environ, "MESHCTL_ADDRESS": await _leader(mesh), "USER": "ada"},
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def restarted(mesh: TwoOfEverything, process: ServiceProcess) -> None:
    await asyncio.to_thread(process.stop)
    process.start()
    await mesh.is_well()


def produce(bootstrap: str, topic: str, value: str) -> None:
    faults: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: faults.append(error))
    assert producer.flush(WITHIN_S) == 0
    assert faults == [None]


async def _leader(mesh: TwoOfEverything) -> str:
    for process in mesh.controls:
        if await asyncio.to_thread(process.ready) == "ready":
            return process.address
    raise AssertionError("no control leads")
