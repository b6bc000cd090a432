"""Real clients, Confluent's serializers and a real registry: values that are valid by content, and others."""

from __future__ import annotations

import asyncio
import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from mesh.schemas.framing import prefix_of
from mesh.schemas.registry import Registry
from mesh.validation import Content, Mode, Rule, ValueSchema
from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.contract import ClientError
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.schema_registry import SchemaRegistry
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.test_protection import headers_of, read_messages

REFUSED = "INVALID_RECORD"
CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "card", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": ["null", "Customer"]}],
}
IN_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer", "maximum": 1000}, "customer": {"$ref": "customer.json"}},
}
CUSTOMER_IN_JSON = {"type": "object", "properties": {"card": {"type": "string", "pattern": "^[0-9]+$"}}}
SECRET = "4111-secret"
WAITS_MS = 3_000
"""A record waits till its producer gives up."""


@dataclass
class House:
    """apples on c1."""

    gateway: RunningGateway
    rules: Rules
    apples: str
    c1: KafkaCluster
    registry: SchemaRegistry

    def validate(self, *rules: Rule) -> None:
        self.gateway.follow(self.rules.validated(*rules))

    def told(self, *values: bytes | None, timeout_ms: int = 60_000) -> list[str]:
        """For each value "stored", or the name of its error."""
        heard: list[str] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            heard.append(error.name() if error else "stored")

        config = {"bootstrap.servers": self.gateway.address, "linger.ms": 0, "message.timeout.ms": timeout_ms}
        producer = Producer(config)
        for value in values:
            producer.produce(self.apples, value, on_delivery=delivered)
            assert producer.flush(90) == 0
        return heard

    @property
    def context(self) -> SerializationContext:
        return SerializationContext(self.apples, MessageField.VALUE)


@pytest.fixture
def house(
    rules: Rules,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    schema_registry: SchemaRegistry,
) -> House:
    apples = f"content-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_c1, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]), schema_registry_url=schema_registry.url)
    return House(gateway, rules, apples, kafka_c1, schema_registry)


def named(topic: str, **more: Any) -> Rule:
    return Rule("content", topic, content=Content.NAMED, **more)


Serialize = Callable[[Any, SerializationContext], bytes | None]


def avro(client: SchemaRegistryClient, house: House) -> tuple[Serialize, Any]:
    """With a reference to another schema."""
    subject = f"{house.apples}-customer"
    client.register_schema(subject, Schema(json.dumps(CUSTOMER), "AVRO"))
    order = Schema(json.dumps(ORDER), "AVRO", [SchemaReference("Customer", subject, 1)])
    return AvroSerializer(client, order), {"id": 7, "customer": {"card": SECRET}}


def json_schema(client: SchemaRegistryClient, house: House) -> tuple[Serialize, Any]:
    subject = f"{house.apples}-customer"
    client.register_schema(subject, Schema(json.dumps(CUSTOMER_IN_JSON), "JSON"))
    order = Schema(json.dumps(IN_JSON), "JSON", [SchemaReference("customer.json", subject, 1)])
    return JSONSerializer(order, client), {"id": 7, "customer": {"card": "4111"}}


def protobuf(client: SchemaRegistryClient, house: House) -> tuple[Serialize, Any]:
    """A message of a generated module, which imports two other files."""
    from google.protobuf.api_pb2 import Method

    serializer = ProtobufSerializer(Method, client, {"use.deprecated.format": False})
    return serializer, Method(name=SECRET, request_type_url="a")


@pytest.mark.parametrize("make", [avro, json_schema, protobuf])
def test_confluents_serializers_pass_and_bytes_that_their_schema_does_not_know_are_refused(
    house: House, make: Callable[[SchemaRegistryClient, House], tuple[Serialize, Any]]
) -> None:
    serialize, value = make(SchemaRegistryClient({"url": house.registry.url, "timeout": 30}), house)
    good = serialize(value, house.context)
    assert good is not None
    house.validate(named(house.apples, value_schema=ValueSchema.SUBJECT))
    prefix, payload = good[:5], good[5:]
    bad = [payload + b"\xff", payload[:-1], payload[:1]]
    assert house.told(good, None, *(prefix + each for each in bad)) == ["stored", "stored", *[REFUSED] * len(bad)]
    assert house.told(prefix_of(99_999) + payload, SECRET.encode(), b"") == [REFUSED] * 3
    house.validate(named(house.apples, mode=Mode.OBSERVE))
    assert house.told(prefix + bad[0]) == ["stored"]


def avro_of(schema_id: int, value: Any, schema: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return prefix_of(schema_id) + out.getvalue()


async def test_javas_producer_hears_the_record_and_the_place_and_nothing_of_the_value(
    house: House, tmp_path: Path
) -> None:
    small = json.dumps({"required": ["id"], "properties": {"id": {"maximum": 9}}})
    rule = Rule("shape", house.apples, content=Content.GIVEN, content_schema=small)
    await asyncio.to_thread(house.validate, rule)
    tools = ConsoleTools(house.gateway.address)
    java = ("--topic", house.apples, "--command-property", "linger.ms=200")
    with pytest.raises(ClientError) as refused:
        await tools.run(Tool.CONSOLE_PRODUCER, *java, stdin=f'{{"id": 1}}\n{{"id": 99, "card": "{SECRET}"}}\n')
    told = str(refused.value)
    assert "#/id does not keep to maximum 9 (rule 'shape' of the mesh)" in told
    assert SECRET not in told.replace(f'"card": "{SECRET}"', "")
    await tools.run(Tool.CONSOLE_PRODUCER, *java, stdin='{"id": 2}\n{"id": 3}\n')
    assert await asyncio.to_thread(read_all, house.c1.bootstrap, house.apples) == ['{"id": 2}', '{"id": 3}']


def test_plain_json_is_checked_by_the_latest_schema_of_a_subject_which_may_change(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.keys.ring.LATEST_S", 0.5)
    subject = f"{house.apples}-plain"
    closed = {"type": "object", "additionalProperties": False, "properties": {"id": {"type": "integer"}}}
    house.registry.register(subject, json.dumps(closed), schemaType="JSON")
    house.validate(Rule("plain", house.apples, content=Content.SUBJECT, content_schema=subject))
    new = b'{"id": 1, "note": "x"}'
    assert house.told(b'{"id": 1}', new, b"no json", None) == ["stored", REFUSED, REFUSED, "stored"]
    closed["properties"] = {"id": {"type": "integer"}, "note": {"type": "string"}}
    house.registry.register(subject, json.dumps(closed), schemaType="JSON")
    wait_until(lambda: house.told(new) == ["stored"], "the new version counts", 30)
    house.validate(Rule("plain", house.apples, content=Content.SUBJECT, content_schema=f"{subject}-unknown"))
    assert house.told(b'{"id": 1}') == [REFUSED]


def test_known_schemas_count_while_the_registry_is_away_and_new_ones_wait_or_pass(house: House) -> None:
    one, two = (house.registry.register(f"{house.apples}-value", f'"{kind}"') for kind in ("string", "long"))
    good, bad, new = avro_of(one, "a", "string"), prefix_of(one) + b"\x08a", avro_of(two, 5, "long")
    house.validate(named(house.apples))
    assert house.told(good) == ["stored"]
    house.gateway.gateway.mesh.memory.data_keys._registry = Registry("http://127.0.0.1:9")  # type: ignore[attr-defined]
    assert house.told(good, bad) == ["stored", REFUSED]
    assert house.told(new, timeout_ms=WAITS_MS) == ["_MSG_TIMED_OUT"]
    house.validate(named(house.apples, stores_unchecked=True))
    assert house.told(good, bad, new) == ["stored", REFUSED, "stored"]


def test_a_rule_that_marks_stores_the_record_with_the_reason(house: House) -> None:
    house.validate(
        Rule("shape", house.apples, mode=Mode.MARK, content=Content.GIVEN, content_schema='{"type": "object"}')
    )
    values = [b"{}", b"[]", b"{}"]
    config = {"bootstrap.servers": house.gateway.address, "linger.ms": 200, "compression.type": "zstd"}
    producer = Producer(config)
    for value in values:
        producer.produce(house.apples, value, headers={"trace": b"1"})
    assert producer.flush(90) == 0
    found = read_messages({"bootstrap.servers": house.c1.bootstrap}, house.apples, 3)
    assert [message.value() for message in found] == values
    assert [headers_of(message).get("mesh-validation") for message in found] == [
        None,
        b"the value is not valid by the rule's schema: # does not keep to type [\"object\"] (rule 'shape' of the mesh)",
        None,
    ]
    assert all(headers_of(message)["trace"] == b"1" for message in found)


def test_refused_records_are_in_the_topic_of_dead_letters_before_their_client_hears(
    house: House, create_topic: CreateTopic, kafka_c2: KafkaCluster
) -> None:
    """It lives on another cluster, and is made late."""
    letters = f"{house.apples}-letters"
    rule = Rule(
        "shape", house.apples, content=Content.GIVEN, content_schema='{"type": "object"}', dead_letter_topic=letters
    )
    house.gateway.follow(house.rules.to("c2", [letters]))
    house.validate(rule)
    assert house.told(b"[]", timeout_ms=WAITS_MS) == ["_MSG_TIMED_OUT"], "no dead letter, no refusal"
    create_topic(kafka_c2, letters, 1)
    assert house.told(b"{}", b"[]", None) == ["stored", REFUSED, "stored"]
    (found,) = read_messages({"bootstrap.servers": kafka_c2.bootstrap}, letters, 1)
    assert (found.value(), headers_of(found)["dlq.topic"]) == (b"[]", house.apples.encode())
    assert b"does not keep to type" in headers_of(found)["mesh-validation"]
