"""`meshctl clients` tells of real clients over two clusters: who they are, what they do, what a release would break."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from tests.clients.contract import Reading
from tests.clients.registry import CLIENTS
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World
from tests.fixtures.meshes import Mesh
from tests.fixtures.waiting import wait_until

SOFTWARE = {"java-4.4": "apache-kafka-java/4.4.0", "confluent": "confluent-kafka-python/", "aiokafka": ""}
"""Name and version, as the clients of each library send them; aiokafka sends none."""
RATE = 10

pytestmark = pytest.mark.skipif("MESH_TEST_BOOTSTRAP" in os.environ, reason="the system under test may not be a mesh")


def told(mesh: Mesh, *options: str) -> list[dict[str, Any]]:
    clients: list[dict[str, Any]] = json.loads(mesh.meshctl("clients", *options, "-o", "json").stdout)["clients"]
    return clients


async def until_told(
    mesh: Mesh, options: tuple[str, ...], is_so: Callable[[list[dict[str, Any]]], bool], what: str
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def tells() -> bool:
        found[:] = told(mesh, *options)
        return is_so(found)

    await asyncio.to_thread(wait_until, tells, what, 90)
    return found


@pytest.mark.timeout(400)
async def test_clients_over_two_clusters_are_told_with_what_they_do(mesh: Mesh, world: World) -> None:
    on_c1, on_c2 = await world.topic_on_each(1)
    group = world.name("group")
    async with AsyncExitStack() as ending:
        for topic in (on_c1, on_c2):
            load = await TopicUnderLoad.start_of(world.bootstrap, topic, group, list(SOFTWARE), rate=RATE)
            ending.push_async_callback(load.stop)
        for topic in (on_c1, on_c2):
            found = await until_told(
                mesh,
                ("--topic", topic),
                lambda clients: (
                    all(any(each["software"].startswith(one) for each in clients) for one in SOFTWARE.values())
                    and all(each["rates"]["requests"] > 0 for each in clients)
                    and {name for each in clients for name in each["groups"]} >= {f"{group}-{one}" for one in SOFTWARE}
                    and any(each["produces_to"] for each in clients)
                ),
                f"all clients of {topic} are told",
            )
            for software in SOFTWARE.values():
                mine = [each for each in found if each["software"].startswith(software)]
                used = {api["api"]: api for each in mine for api in each["apis"]}
                assert {"Produce", "Fetch", "Metadata"} <= used.keys()
                assert used["Produce"]["highest_version"] >= used["Produce"]["lowest_version"] > 2
                assert int(used["Produce"]["requests"]) > 0
                assert any(topic in each["produces_to"] for each in mine)
                assert any(topic in each["consumes_from"] for each in mine)
            assert {each["address"] for each in found} == {"127.0.0.1"}
            assert {each["principal"] for each in found} == {"User:ANONYMOUS"}
            assert all(each["listener"] and each["gateway"] and each["since_time"] for each in found)
            assert all(each["rates"]["bytes_in"] > 0 and each["rates"]["bytes_out"] > 0 for each in found)
            command = ("clients", "--topic", topic, "--broken-by-acls", "-o", "json")
            broken = json.loads((await asyncio.to_thread(mesh.meshctl, *command)).stdout)["broken"]
            lost = {(each["operation"], each["resource_type"], each["resource"]) for each in broken}
            assert {("write", "topic", topic), ("read", "topic", topic)} <= lost, "no ACL allows anything"
            assert {("read", "group", f"{group}-{one}") for one in SOFTWARE} <= lost
        assert told(mesh, "--topic", on_c1, "--removed-by", "4.0") == []
        shown = mesh.meshctl("clients", "--topic", on_c1).stdout
        assert on_c1 in shown and SOFTWARE["java-4.4"] in shown

        text = await asyncio.to_thread(lambda: httpx.get(mesh.metrics("gateway")).text)
        for part in ("gateway", "upstream"):
            for api in ("Produce", "Fetch"):
                assert f'kafka_mesh_gateway_request_{part}_seconds_count{{api="{api}"}}' in text
    await until_told(mesh, ("--topic", on_c2), lambda clients: clients == [], "clients that have gone are told no more")


@pytest.mark.timeout(400)
async def test_a_client_of_before_kafka_4_is_told_with_the_versions_that_are_gone(mesh: Mesh, world: World) -> None:
    """An old client keeps talking to clusters of Kafka 4 through the gateway; brokers alone would refuse it."""
    on_c1, _ = await world.topic_on_each(1)
    load = await TopicUnderLoad.start_of(world.bootstrap, on_c1, world.name("group"), ["kafka-python-1.4"], rate=RATE)
    try:
        options = ("--topic", on_c1, "--removed-by", "4.1")
        found = await until_told(
            mesh,
            options,
            lambda clients: any(each["produces_to"] and "Produce" in _gone(each) for each in clients),
            "the old producer is told",
        )
        gone = [_gone(each)["Produce"] for each in found if "Produce" in _gone(each)]
        assert {(each["removed_in"], each["lowest_version"] <= 2) for each in gone} == {("4.0", True)}
        assert told(mesh, "--topic", on_c1, "--removed-by", "3.9") == []
        assert "4.0" in mesh.meshctl("clients", *options, "--apis").stdout
    finally:
        await load.stop()


@pytest.mark.timeout(300)
async def test_a_client_that_meets_errors_is_told_with_their_codes(mesh: Mesh, world: World) -> None:
    nowhere = world.name("c1-nowhere")
    client = CLIENTS["confluent"](world.bootstrap)
    reading = asyncio.create_task(client.consume(Reading((nowhere,), group=world.name("group"), count=1)))
    try:
        found = await until_told(
            mesh,
            ("--with-errors",),
            lambda clients: any("UNKNOWN_TOPIC_OR_PARTITION" in _codes(each) for each in clients),
            "the error is told",
        )
        assert all(_codes(each) for each in found)
        metrics = await asyncio.to_thread(lambda: httpx.get(mesh.metrics("gateway")).text)
        assert 'kafka_mesh_gateway_response_errors_total{api="Metadata",error="UNKNOWN_TOPIC_OR_PARTITION"}' in metrics
        wrong = mesh.meshctl("clients", "--removed-by", "four", check=False)
        assert (wrong.returncode, "removed_by: 'four' is no release" in wrong.stderr) == (2, True)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _gone(client: dict[str, Any]) -> dict[str, Any]:
    return {api["api"]: api for api in client["apis"] if api["removed_in"]}


def _codes(client: dict[str, Any]) -> set[str]:
    return {error["error"] for api in client["apis"] for error in api["errors"]}
