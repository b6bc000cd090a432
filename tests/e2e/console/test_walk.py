"""The walk of docs/how-to/console.md: records by schema, and clients. MESH_WRITE_PICTURES=1 renews its pictures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from selenium.webdriver.common.keys import Keys

from mesh.rpc import admin, clients, clients_grpc, discovery
from tests.e2e.console.browser import Browser
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.console_records import READ, Recorded, recorded
from tests.fixtures.consoles import VIEWER, consoled
from tests.fixtures.databases import PostgresServer
from tests.fixtures.schema_registry import SchemaRegistry
from tests.integration.control.world import CALL, create_topic, until

pytestmark = pytest.mark.soak
TOPIC = "shop.orders"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "count", "type": "int"},
        {"name": "fruit", "type": "string"},
        {"name": "price", "type": "double"},
    ],
}
ORDERS = ((3, "apples", 2.4), (12, "pears", 9.0), (1, "plums", 0.3), (40, "apples", 30.5))
WIDTHS = (375, 1200)


@pytest.fixture
async def house(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    unique_name: Callable[[str], str],
    schema_registry: SchemaRegistry,
    tmp_path: Path,
) -> AsyncIterator[Recorded]:
    """Orders in Avro on c1, which ada may read."""
    create_topic(kafka_c1.bootstrap, TOPIC, 1)
    write = AvroSerializer(SchemaRegistryClient({"url": schema_registry.url, "timeout": 60}), json.dumps(ORDER))
    where = SerializationContext(TOPIC, MessageField.VALUE)
    values = [write(dict(zip(("count", "fruit", "price"), each, strict=True)), where) for each in ORDERS]
    clusters, authority = {"c1": kafka_c1}, Authority(tmp_path / "authority")
    async with (
        consoled(postgres.migrated(), unique_name("console-events"), clusters, authority) as made,
        recorded(
            made, tmp_path, clusters, {TOPIC: "c1"}, schema_registry_url=schema_registry.url,
            schema_registry_timeout_s=30,
        ) as house,
    ):  # fmt: skip
        await made.grant("ada", VIEWER)
        house.allow(("ada", READ, TOPIC))
        house.write("c1", TOPIC, *({"key": f"order-{n}", "value": each} for n, each in enumerate(values)))
        yield house


async def with_clients(house: Recorded) -> None:
    """A router that tells control who is connected."""
    gateway = admin.Member(name="members/gateway-1", kind=admin.MEMBER_KIND_GATEWAY, client_count=5)
    report = discovery.ClientReport(total=5, kinds=2)
    shop = report.clients.add(
        client_id="shop", principal="User:alice", software="apache-kafka-java/4.1.0", connections=3, topics=[TOPIC],
        produced=[0],
    )  # fmt: skip
    shop.rates.requests, shop.rates.bytes_in, shop.rates.bytes_out = 41.5, 120_000, 2_400
    old = report.clients.add(
        client_id="report", principal="User:bob", software="kafka-python/1.4.7", connections=2, topics=[TOPIC],
        consumed=[0], groups=["reports"],
    )  # fmt: skip
    old.apis.add(api="Fetch", lowest_version=2, highest_version=2, requests=7, removed_in="4.0")
    for each in report.clients:
        each.since_time.GetCurrentTime()
    world = house.consoled.world
    stream = world.rollouts.Report()
    router = admin.Member(name="members/router-1", kind=admin.MEMBER_KIND_ROUTER)
    told = discovery.RouterReport(router=router, members=[gateway], clients={gateway.name: report})
    await stream.write(told)
    await stream.read()
    inventory = clients_grpc.ClientServiceStub(world.channel)

    async def is_known() -> bool:
        return bool((await inventory.ListClients(clients.ListClientsRequest(), timeout=CALL)).clients)

    await until(is_known, "control knows the clients")


async def test_records_by_their_schema_and_clients(house: Recorded, chromium: Browser, axe: str) -> None:
    await with_clients(house)
    consoled = house.consoled

    def is_usable(picture: str) -> None:
        for width in WIDTHS:
            chromium.resize(width)
            assert chromium.findings(axe) == []
            assert chromium.is_as_wide_as_its_window()
        chromium.picture(picture)

    def walks() -> None:
        chromium.open(f"{consoled.url}/login")
        chromium.tabs_to("Token")
        chromium.types(consoled.token("ada"), Keys.ENTER)
        chromium.shows("Log out")
        chromium.open(f"{consoled.url}/records?topic={TOPIC}")
        chromium.tabs_to("Filter in CEL")
        chromium.types("value.fruit == 'apples'", Keys.ENTER)
        chromium.shows('"count": 40')
        assert "pears" not in chromium.text()
        is_usable("console-records")
        chromium.tabs_to("0/3")
        chromium.types(Keys.ENTER)
        chromium.shows("Avro, schema id")
        is_usable("console-record")
        chromium.chord("k")
        chromium.types("clients", Keys.ENTER)
        chromium.shows("kafka-python/1.4.7")
        is_usable("console-clients")

    await asyncio.to_thread(walks)
    assert [each for each in chromium.faults() if "favicon" not in each] == []
