"""Kafka Streams by the streams protocol (KIP-1071): on one cluster, or told why not."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mesh.routing import ForwardingRule, NamePrefix
from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.streams.driver import WordCount
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, DeleteTopic, StartGateway
from tests.integration.gateway.records import produce, read_all
from tests.integration.gateway.running import Rules

REFUSED_WITHIN_S = 120.0


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_an_application_counts_on_one_cluster_and_is_refused_on_two(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    delete_topic: DeleteTopic,
    unique_name: Callable[[str], str],
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
    tmp_path: Path,
) -> None:
    output = unique_name("counted")
    create_topic(kafka_c1, apples)
    create_topic(kafka_c1, output)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples, output])
    rules.to("c2", [bananas])
    gateway = start_gateway(rules.put(ForwardingRule("internal", NamePrefix(group), "c1")))
    count = WordCount(gateway.address, group, "at_least_once", tmp_path, apples, output, "streams")
    produce(gateway.address, apples, ["red green red", "green red"])

    async def counted() -> str:
        async with count.running():
            await asyncio.to_thread(
                wait_until, lambda: {"2", "3"} <= set(read_all(kafka_c1.bootstrap, output)), "all is counted"
            )
            return await ConsoleTools(gateway.address).run(Tool.STREAMS_GROUPS, "--describe", "--group", group)

    described = asyncio.run(counted())
    for topic in count.internal_topics:
        delete_topic(kafka_c1, topic)
    assert all(topic in described for topic in (apples, count.internal_topics[0]))

    over_two = WordCount(gateway.address, group, "at_least_once", tmp_path, bananas, output, "streams")
    with subprocess.Popen(over_two.command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        told = program.stderr.read()
        program.wait(REFUSED_WITHIN_S)
        assert f"(cluster c2: {bananas})" in told
