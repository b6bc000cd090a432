"""Formats with schemas against a real registry and real Kafka; what was written is read by confluent-kafka's own
deserializers, which share nothing with ours but the registry.

The exchanges are those that were recorded of the original, in their order, as far as ours answers the same; where the
original failed, ours says what its contract says.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from services.sidecar.api.requests import BIG_BODY_BYTES
from services.sidecar.producing.serializing import LOOK_UP_THREADS
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.schema_registry import SchemaRegistry
from tests.fixtures.small_registry import SmallRegistry
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import WITHIN_SECONDS, Kafka, SidecarWorld, started

TAGGED_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
ORDER = json.dumps(TAGGED_ORDER)
ORDER_WITH_TEXT_ID = ORDER.replace('"int"', '"string"')
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
COUNT = json.dumps(
    {
        **DRAFT_7,
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
        "additionalProperties": False,
    }
)
STRINGS = {"keyFormat": "STRING"}


@dataclass(frozen=True)
class Registry:
    """The registry, seen by a client that is not ours."""

    url: str
    client: SchemaRegistryClient

    def must_stay_compatible(self, subject: str) -> None:
        answer = httpx.put(f"{self.url}/config/{subject}", json={"compatibility": "BACKWARD"}, timeout=30)
        answer.raise_for_status()


@pytest.fixture(scope="module")
def registry(schema_registry: SchemaRegistry) -> Registry:
    return Registry(schema_registry.url, SchemaRegistryClient({"url": schema_registry.url, "timeout": 30}))


@pytest.fixture(scope="module")
def shared(kafka_c1: KafkaCluster, registry: Registry) -> Iterator[SidecarWorld]:
    """One sidecar for all tests here."""
    with started(kafka_c1.bootstrap, schema_registry_url=registry.url, schema_registry_timeout_ms=30_000) as world:
        yield world


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def value_context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_as_it_was_recorded(shared: SidecarWorld, kafka: Kafka, registry: Registry, orders: str) -> None:
    def produce(value: Any, **members: object) -> httpx.Response:
        return shared.produce(orders, {"key": "1", "partition": 0, "value": value}, **STRINGS, **members)

    first = produce({"id": 1, "note": {"string": "tagged"}}, valueFormat="AVRO", valueSchema=ORDER)
    schema_id = first.json()["value_schema_id"]
    ways: list[dict[str, object]] = [
        {"valueSchemaId": schema_id},
        {"valueSchemaVersion": 1},
        {"valueSchemaVersion": 1, "valueSchemaSubject": f"{orders}-value"},
        {"valueFormat": "AVRO"},
        {"valueFormat": 2},
        {"valueFormat": "avro"},
        {"valueFormat": "AVRO", "valueSchemaId": schema_id},
        {"value_schema_id": schema_id},
        {"valueSchemaSubject": f"{orders}-value"},
    ]
    for offset, way in enumerate(ways, start=1):
        answer = produce({"id": offset + 1, "note": None}, **way)
        assert (answer.status_code, answer.json()) == (
            200,
            {"offsets": [{"partition": 0, "offset": offset}], "value_schema_id": schema_id, "requestStatus": "OK"},
        )
    plain = produce({"id": 100, "note": "plain"}, valueFormat="AVRO")  # the original refuses it
    assert plain.status_code == 200

    found = kafka.read(orders, len(ways) + 2)
    assert found[0].value == b"\x00" + schema_id.to_bytes(4, "big") + b"\x02\x02\x0ctagged"
    deserialize = AvroDeserializer(registry.client)
    read = [deserialize(record.value, value_context(orders)) for record in found]
    assert read[0] == {"id": 1, "note": "tagged"}
    assert read[1:-1] == [{"id": number + 2, "note": None} for number in range(len(ways))]
    assert read[-1] == {"id": 100, "note": "plain"}


def test_keys_have_schemas_too(shared: SidecarWorld, kafka: Kafka, registry: Registry, orders: str) -> None:
    answer = shared.produce(
        orders,
        {"key": "k", "value": {"id": 12, "note": None}},
        keyFormat="AVRO",
        keySchema='"string"',
        valueFormat="AVRO",
        valueSchema=ORDER,
    )
    key_id = answer.json()["key_schema_id"]
    assert list(answer.json()) == ["offsets", "key_schema_id", "value_schema_id", "requestStatus"]
    (record,) = kafka.read(orders, 1)
    assert record.key == b"\x00" + key_id.to_bytes(4, "big") + b"\x02k"


def test_json_schema_as_it_was_recorded(shared: SidecarWorld, kafka: Kafka, registry: Registry, orders: str) -> None:
    raw = shared.produce(orders, {"value": {"count": 1}, "partition": 0}, valueFormat="JSONSCHEMA", valueSchema=COUNT)
    latest = shared.produce(orders, {"value": {"count": 2}, "partition": 0}, valueFormat=3)
    schema_id = raw.json()["value_schema_id"]
    assert latest.json()["value_schema_id"] == schema_id
    wrong = shared.produce(orders, {"value": {"count": 3}}, {"value": {"count": "no"}}, valueFormat="jsonschema")
    assert refusal(wrong) == (400, "ERR12206")
    assert wrong.json()["description"] == (
        "Unexpected exception in serializing jsonschema , index in batch : 1 "
        "format with message value: #/count: expected type: Integer, found: String"
    )
    found = kafka.read(orders, 2)
    assert [record.value for record in found] == [
        b"\x00" + schema_id.to_bytes(4, "big") + text for text in (b'{"count":1}', b'{"count":2}')
    ]
    deserialize = JSONDeserializer(None, schema_registry_client=registry.client)
    assert [deserialize(record.value, value_context(orders)) for record in found] == [{"count": 1}, {"count": 2}]


@pytest.mark.parametrize(
    ("value", "index_and_reason"),
    [
        ([{"id": "x", "note": None}], "0 format with message value: #/id: Expected int. Got VALUE_STRING"),
        (
            [{"id": 8, "note": None}, {}, {"id": 10, "note": None}],
            "1 format with message value: #/id: Expected int. Got END_OBJECT",
        ),
    ],
)
def test_one_bad_record_writes_none(
    shared: SidecarWorld, kafka: Kafka, orders: str, value: list[object], index_and_reason: str
) -> None:
    records = [{"value": one} for one in value]
    answer = shared.produce(orders, *records, valueFormat="AVRO", valueSchema=ORDER)
    assert refusal(answer) == (400, "ERR12206")
    description = f"Unexpected exception in serializing avro , index in batch : {index_and_reason}"
    assert answer.json()["description"] == description
    assert kafka.read(orders, 0) == []


def test_schemas_that_are_not_to_be_had(shared: SidecarWorld, orders: str) -> None:
    """The original answers 500 ERR10010 to all of them, or takes another schema that it happens to know."""

    def produce(**members: object) -> tuple[int, str]:
        return refusal(shared.produce(orders, {"value": {"id": 1}}, **members))

    assert produce(valueSchemaId=999_999) == (400, "ERR12208")
    assert produce(valueSchemaVersion=99) == (400, "ERR12208")
    assert produce(valueFormat="AVRO") == (400, "ERR12208")
    assert produce(valueFormat="AVRO", valueSchema="{nope") == (400, "ERR12208")
    assert produce(valueFormat="JSONSCHEMA", valueSchema="{nope") == (400, "ERR12208")
    assert produce(valueSchemaId=1, valueSchemaVersion=1) == (400, "ERR12210")
    assert produce(valueSchemaId=1, valueSchema=ORDER) == (400, "ERR12211")
    assert produce(valueSchemaVersion=1, valueSchema=ORDER) == (400, "ERR12213")
    assert produce(valueSchema=ORDER) == (400, "ERR12214")
    assert produce(valueFormat="STRING", valueSchemaSubject="s") == (400, "ERR12215")


def test_an_incompatible_schema_is_named(shared: SidecarWorld, registry: Registry, orders: str) -> None:
    registry.client.register_schema(f"{orders}-value", Schema(ORDER, "AVRO"))
    registry.must_stay_compatible(f"{orders}-value")
    answer = shared.produce(orders, {"value": {"id": "1"}}, valueFormat="AVRO", valueSchema=ORDER_WITH_TEXT_ID)
    assert refusal(answer) == (400, "ERR12208")
    assert f"not compatible with what subject {orders}-value has" in answer.json()["description"]


def test_schemas_refer_to_others(shared: SidecarWorld, kafka: Kafka, registry: Registry, orders: str) -> None:
    color = json.dumps({"type": "enum", "name": "shop.Color", "symbols": ["RED", "GREEN"]})
    apple = json.dumps(
        {"type": "record", "name": "Apple", "namespace": "shop", "fields": [{"name": "color", "type": "Color"}]}
    )
    registry.client.register_schema(f"{orders}-color", Schema(color, "AVRO"))
    references = [{"name": "shop.Color", "subject": f"{orders}-color", "version": 1}]
    raw = shared.produce(
        orders,
        {"value": {"color": "RED"}, "partition": 0},
        valueFormat="AVRO",
        valueSchema=apple,
        valueSchemaReferences=references,
    )
    assert raw.status_code == 200, raw.text
    by_id = shared.produce(
        orders, {"value": {"color": "GREEN"}, "partition": 0}, valueSchemaId=raw.json()["value_schema_id"]
    )
    assert by_id.status_code == 200
    deserialize = AvroDeserializer(registry.client)
    read = [deserialize(record.value, value_context(orders)) for record in kafka.read(orders, 2)]
    assert read == [{"color": "RED"}, {"color": "GREEN"}]


def test_json_schemas_refer_to_others(shared: SidecarWorld, kafka: Kafka, registry: Registry, orders: str) -> None:
    registry.client.register_schema(f"{orders}-color", Schema(json.dumps({**DRAFT_7, "enum": ["red"]}), "JSON"))
    answer = shared.produce(
        orders,
        {"value": {"color": "red"}},
        {"value": {"color": "blue"}},
        valueFormat="JSONSCHEMA",
        valueSchema=json.dumps({**DRAFT_7, "type": "object", "properties": {"color": {"$ref": "color.json"}}}),
        valueSchemaReferences=[{"name": "color.json", "subject": f"{orders}-color", "version": 1}],
    )
    assert refusal(answer) == (400, "ERR12206")
    assert "index in batch : 1 format with message value: #/color: 'blue' is not one of" in answer.json()["description"]


@pytest.mark.parametrize(("format_", "schema"), [("AVRO", ORDER), ("JSONSCHEMA", COUNT)])
def test_an_instance_reads_what_its_format_says(
    shared: SidecarWorld, kafka: Kafka, orders: str, format_: str, schema: str
) -> None:
    """As recorded with a global format; by instance the original gives no answer (T11)."""
    value = {"id": 1, "note": {"string": "tagged"}} if format_ == "AVRO" else {"count": 1}
    records = [{"key": "k", "value": one} for one in (value, None)]
    assert shared.produce(orders, *records, **STRINGS, valueFormat=format_, valueSchema=schema).status_code == 200
    instance = shared.create(f"{orders}-g", "c1", keyFormat="STRING", valueFormat=format_)
    instance.subscribe(orders)
    found = instance.read_all(2)
    assert [record["key"] for record in found] == ["k", "k"]
    assert [record.get("value") for record in found] == [value, None]


def test_plain_unions_and_what_others_wrote(kafka: Kafka, registry: Registry, orders: str) -> None:
    serialize = AvroSerializer(registry.client, ORDER)
    written = serialize({"id": 5, "note": "theirs"}, value_context(orders))
    kafka.write(orders, {"value": written})
    patient = {"schema_registry_url": registry.url, "schema_registry_timeout_ms": 30_000}
    with started(kafka.bootstrap, **patient, use_no_wrapping_avro=True) as world:
        instance = world.create(f"{orders}-g", "c1", valueFormat="AVRO")
        instance.subscribe(orders)
        (record,) = instance.read_all(1)
    assert record["value"] == {"id": 5, "note": "theirs"}


def test_a_record_that_does_not_fit_is_named_and_stays(shared: SidecarWorld, kafka: Kafka, orders: str) -> None:
    kafka.write(orders, {"value": b"plain text", "partition": 1})
    instance = shared.create(f"{orders}-g", "c1", valueFormat="AVRO")
    instance.subscribe(orders)
    answer = instance.get()
    assert refusal(answer) == (400, "ERR12205")
    assert f"Record {orders}-1 offset 0 does not fit its format: its value is not written" in answer.text
    assert [record["value"] for record in instance.read_all(1, format="binary")] == ["cGxhaW4gdGV4dA=="]


def test_the_schema_may_be_in_a_header_by_its_guid(kafka: Kafka, orders: str) -> None:
    """A stand-in for the registry: that of the other tests knows no GUIDs."""
    guid = bytes(range(16))
    named = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    kafka.write(orders, {"value": b"\x0a\x00", "headers": [("__value_schema_id", b"\x01" + guid)], "partition": 0})
    kafka.write(orders, {"value": b"\x01" + guid + b"\x0c\x00", "partition": 0})
    with (
        SmallRegistry(guids={named: {"schema": ORDER}}) as small,
        started(kafka.bootstrap, schema_registry_url=small.url) as world,
    ):
        instance = world.create(f"{orders}-g", "c1", valueFormat="AVRO")
        instance.subscribe(orders)
        assert [record["value"]["id"] for record in instance.read_all(2)] == [5, 6]
        assert small.asked == [f"/schemas/guids/{named}"]


def test_a_registry_that_is_away_is_no_fault_of_the_request(kafka: Kafka, orders: str) -> None:
    with SmallRegistry() as small, started(kafka.bootstrap, schema_registry_url=small.url) as world:
        small.schemas[7] = {"schema": ORDER}
        small.failures += [500, 500]  # both attempts
        answer = world.produce(orders, {"value": {"id": 1}, "partition": 0}, valueSchemaId=7)
        assert refusal(answer) == (503, "ERR12920")
        assert answer.headers["Retry-After"]
        assert kafka.read(orders, 0) == []

        kafka.write(orders, {"value": b"\x00\x00\x00\x00\x07\x0a\x00", "partition": 0})
        small.failures += [500] * 100
        instance = world.create(f"{orders}-g", "c1", valueFormat="AVRO")
        instance.subscribe(orders)
        read = instance.get()
        assert refusal(read) == (503, "ERR12920")
        assert f"Record {orders}-0 offset 0 cannot be read now" in read.text
        small.failures.clear()
        while (again := instance.get()).status_code == 503:
            pass  # the sidecar leaves the registry in peace for a second
        assert [record["value"]["id"] for record in again.json()] == [5]


def test_nobody_there_is_answered_at_once(kafka: Kafka, orders: str) -> None:
    with started(kafka.bootstrap, schema_registry_url="http://127.0.0.1:1") as world:
        for _ in range(3):
            assert refusal(world.produce(orders, {"value": 1}, valueFormat="AVRO")) == (503, "ERR12920")
        plain = world.produce(orders, {"value": 1}, valueFormat="JSON")
        assert plain.status_code == 200  # whoever needs no schema does not notice


def test_a_registry_that_is_silent_holds_up_nobody_else(kafka: Kafka, orders: str) -> None:
    """Who needs a schema waits for it, bounded; the event loop does not."""
    with (
        SmallRegistry(schemas={7: {"schema": ORDER}}) as small,
        started(kafka.bootstrap, schema_registry_url=small.url, schema_registry_timeout_ms=30_000) as world,
        ThreadPoolExecutor(8) as callers,
    ):
        small.silent.set()
        waiting = [
            callers.submit(world.produce, orders, {"value": {"id": number}}, valueSchemaId=7) for number in range(8)
        ]
        wait_until(lambda: small.asked == ["/schemas/ids/7"], "the registry is asked")
        for _ in range(3):
            assert world.produce(orders, {"value": 1}, valueFormat="JSON").status_code == 200
        assert not any(one.done() for one in waiting)
        small.silent.clear()
        assert {one.result(WITHIN_SECONDS).status_code for one in waiting} == {200}
        assert small.asked == ["/schemas/ids/7"]  # once, for all of them


def test_waits_for_a_silent_registry_take_no_thread_of_large_bodies(kafka: Kafka, orders: str) -> None:
    """More schemas are waited for than the pool of large bodies has threads on a machine of two cores."""
    ids = range(1, 13)
    with (
        SmallRegistry(schemas={number: {"schema": ORDER} for number in ids}) as small,
        started(kafka.bootstrap, schema_registry_url=small.url, schema_registry_timeout_ms=30_000) as world,
        ThreadPoolExecutor(len(ids)) as callers,
    ):
        small.silent.set()
        waiting = [callers.submit(world.produce, orders, {"value": {"id": 1}}, valueSchemaId=each) for each in ids]
        wait_until(lambda: len(small.asked) >= LOOK_UP_THREADS, "all threads of look-ups wait")
        large = {"value": "x" * (2 * BIG_BODY_BYTES)}
        assert world.produce(orders, large, valueFormat="JSON").status_code == 200
        assert not any(one.done() for one in waiting)
        small.silent.clear()
        assert {one.result(WITHIN_SECONDS).status_code for one in waiting} == {200}


def test_without_a_registry_the_setting_is_named(sidecar: SidecarWorld, orders: str) -> None:
    produced = sidecar.produce(orders, {"value": 1}, valueFormat="AVRO")
    created = sidecar.http.post(f"/consumers/{orders}-g", json={"valueFormat": "AVRO"})
    assert (refusal(produced), refusal(created)) == ((400, "ERR12208"), (400, "ERR12203"))
    for answer in (produced, created):
        assert "KAFKA_MESH_SIDECAR_SCHEMA_REGISTRY_URL" in answer.json()["description"]
