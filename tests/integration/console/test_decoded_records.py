"""Records in Avro, Protobuf and JSON by a JSON schema on pages: a real registry, and Confluent's own serializers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.type import money_pb2
from grpc_health.v1 import health_pb2

from services.console.records.decoding import DOWN_S
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.console_records import READ, Recorded, recorded
from tests.fixtures.consoles import VIEWER, Consoled
from tests.fixtures.schema_registry import SchemaRegistry
from tests.fixtures.small_registry import SmallRegistry
from tests.integration.console.test_records import tailed
from tests.integration.control.world import create_topic

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "count", "type": "long"}, {"name": "kind", "type": ["null", "string"]}],
    }
)
WITH_ID = '{"title": "Id", "type": "object", "properties": {"id": {"type": "integer"}}}'


@pytest.fixture
def topic(kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> str:
    name = unique_name("orders")
    create_topic(kafka_c1.bootstrap, name, 1)
    return name


class Serializers:
    """Confluent's, which register their schemas at the registry."""

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        client = SchemaRegistryClient({"url": registry.url, "timeout": 60})
        self.value = SerializationContext(topic, MessageField.VALUE)
        self.key = SerializationContext(topic, MessageField.KEY)
        self._avro = AvroSerializer(client, ORDER)
        self._json = JSONSerializer(WITH_ID, client)
        self._client = client

    def order(self, count: int, kind: str | None) -> bytes:
        return bytes(self._avro({"count": count, "kind": kind}, self.value))

    def id_as_key(self, number: int) -> bytes:
        return bytes(self._json({"id": number}, self.key))

    def money(self, units: int) -> bytes:
        return self._protobuf(money_pb2.Money(currency_code="EUR", units=units))

    def health(self) -> bytes:
        """The second message of its file."""
        answer = health_pb2.HealthCheckResponse
        return self._protobuf(answer(status=answer.SERVING))

    def _protobuf(self, message: Any) -> bytes:
        """Under a subject of its own: Apicurio takes a further schema of a subject for one of the first's type."""
        name = message.DESCRIPTOR.full_name
        by_name: dict[str, Any] = {"use.deprecated.format": False, "subject.name.strategy": lambda *_: name}
        return bytes(ProtobufSerializer(type(message), self._client, by_name)(message, self.value))


@pytest.fixture
async def house(
    console: Consoled, topic: str, kafka_c1: KafkaCluster, schema_registry: SchemaRegistry, tmp_path: Path
) -> AsyncIterator[Recorded]:
    await console.grant("vera", VIEWER)
    async with recorded(
        console, tmp_path, {"c1": kafka_c1}, {topic: "c1"}, schema_registry_url=schema_registry.url,
        schema_registry_timeout_s=30,
    ) as made:  # fmt: skip
        made.allow(("vera", READ, topic))
        yield made


async def test_avro_protobuf_and_json_in_lists_on_pages_in_filters_and_tails(
    house: Recorded, topic: str, schema_registry: SchemaRegistry
) -> None:
    by = Serializers(schema_registry, topic)
    values = [by.order(3, "apples"), by.order(5, None), by.money(2**40), by.health(), b'{"count": 9}']
    house.write("c1", topic, *({"key": by.id_as_key(n), "value": value} for n, value in enumerate(values)))
    async with house.consoled.person("vera") as vera:
        page = await vera.sees(f"/records?topic={topic}&start=oldest")
        assert '{ "count": 3, "kind": "apples" } (Avro, schema id' in page
        assert '{ "count": 5, "kind": null } (Avro, schema id' in page
        assert '"currencyCode": "EUR", "units": 1099511627776' in page
        assert '{ "status": "SERVING" } (Protobuf, schema id' in page
        assert '{ "id": 4 } (JSON Schema, schema id' in page
        assert '{"count": 9}' in page
        assert "not decoded" not in page

        place = f"/records/one?topic={topic}&partition=0&offset=0"
        page = await vera.sees(place)
        assert "Avro, schema id" in page
        assert '{ "count": 3, "kind": "apples" }' in page
        assert values[0].hex(" ") in await vera.sees(f"{place}&as=hex"), "the bytes are there, too"
        answer = await vera.client.get(place.replace("/one", "/whole"))
        assert answer.content == values[0]

        for text, expected in (
            ("value.count > 3", {1, 4}), ("value.kind == 'apples'", {0}), ("value.units == 1099511627776", {2}),
            ("value.status == 'SERVING'", {3}),
        ):  # fmt: skip
            answer = await vera.client.get("/records", params={"topic": topic, "filter": text, "start": "oldest"})
            found = {n for n in range(5) if f">0/{n}<" in answer.text}
            assert found == expected, (text, answer.text)

        seen = await tailed_with(vera, house, topic, by.order(7, "pears"), "value.count == 7")
        assert "&#34;pears&#34;" in seen or '"pears"' in seen


async def tailed_with(visitor: Any, house: Recorded, topic: str, value: bytes, text: str) -> str:
    """The output of a tail with a filter; the record is written as soon as the tail has begun."""
    written = False

    def is_enough(events: str) -> bool:
        nonlocal written
        if not written and "event: waiting" in events:
            written = True
            house.write("c1", topic, {"value": b'{"count": 1}'}, {"value": value})
        return "event: record" in events

    return await tailed(visitor, f"{topic}&filter={quote(text)}", is_enough)


async def test_a_registry_that_is_away_leaves_the_id_and_the_reason(
    console: Consoled, topic: str, kafka_c1: KafkaCluster, tmp_path: Path
) -> None:
    await console.grant("vera", VIEWER)
    value = b"\0" + (7).to_bytes(4, "big") + b"\x02a"
    with SmallRegistry({7: {"schema": '"string"'}}, failures=[503]) as registry:
        async with recorded(
            console, tmp_path, {"c1": kafka_c1}, {topic: "c1"}, schema_registry_url=registry.url
        ) as house:
            house.allow(("vera", READ, topic))
            house.write("c1", topic, {"value": value})
            async with house.consoled.person("vera") as vera:
                page = await vera.sees(f"/records?topic={topic}")
                assert "(bytes in hex, schema id 7)" in page
                reason = f"the schema registry at {registry.url} answers 503 Service Unavailable; needed is schema 7"
                assert f"Some keys or values are not decoded. {reason}" in page
                page = await vera.sees(f"/records/one?topic={topic}&partition=0&offset=0")
                assert f"Not decoded: {reason}." in page
                page = await vera.sees(f"/records?topic={topic}&filter=value == 'a'")
                assert "The filter can't judge 1 record" in page
                assert reason in page
                assert len(registry.asked) == 1, f"the registry is left alone for {DOWN_S} s"
