"""A broker that stood still for longer than its session tells of no brokers as it wakes: control and sidecar go on."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.unit.gateway.scripted_broker import METADATA_ALONE, broker

ANSWER_S = 30.0
WITHIN_S = 60.0
ASKING = """
import sys
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from mesh.cluster_nodes import cluster_nodes
client = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
for _ in sys.stdin:
    try:
        print(len(cluster_nodes(client, float(sys.argv[2])).brokers), flush=True)
    except KafkaException as error:
        print(error, flush=True)
"""
"""A process of its own: librdkafka's assertion ends the process that calls `describe_cluster` instead."""


@pytest.mark.asyncio
async def test_a_process_outlives_the_answer_of_a_broker_that_knows_of_no_brokers() -> None:
    async with broker({}) as waking:
        waking.versions = METADATA_ALONE
        pipe = asyncio.subprocess.PIPE
        asking = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASKING, waking.address, str(ANSWER_S), stdin=pipe, stdout=pipe
        )
        stdin, stdout = asking.stdin, asking.stdout
        assert stdin is not None and stdout is not None

        async def answer() -> str:
            stdin.write(b"ask\n")
            return (await asyncio.wait_for(stdout.readline(), WITHIN_S)).decode().strip()

        try:
            assert await answer() == "1"
            waking.tell_of_no_brokers()
            assert await answer() == "0"
        finally:
            stdin.close()
            await asyncio.wait_for(asking.wait(), WITHIN_S)
