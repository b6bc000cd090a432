"""Protobuf through a sidecar, Kafka and a registry; at the other end generated classes and confluent-kafka.

Its deserializer has its turn in tests/unit/sidecar/formats/test_protobuf.py: it asks for serialized descriptors, which
this registry does not give for such schemas.
"""

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from grpc_tools import protoc

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.schema_registry import SchemaRegistry
from tests.integration.sidecar.world import Json, Kafka, SidecarWorld, started

PERSON = 'syntax = "proto3"; package shop; message Person { string name = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "shop_person.proto";
message Order {
  int64 id = 1;
  Person buyer = 2;
  google.protobuf.Timestamp placed_at = 3;
  map<string, int32> stock = 4;
}
message Refund { message Reason { string text = 1; } Reason reason = 1; }
"""
PERSON_FILE: Json = {"name": "shop_person.proto", "subject": "shop-person", "version": 1}
VALUE: Json = {"id": "7", "buyer": {"name": "Ann"}, "placedAt": "2026-01-02T03:04:05Z", "stock": {"a": 1}}


@pytest.fixture(scope="module")
def sidecar(kafka_c1: KafkaCluster, schema_registry: SchemaRegistry) -> Iterator[SidecarWorld]:
    schema_registry.register(PERSON_FILE["subject"], PERSON, schemaType="PROTOBUF")
    with started(kafka_c1.bootstrap, schema_registry_url=schema_registry.url) as world:
        yield world


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The classes that Protobuf's compiler makes of the schema, as any program has them."""
    folder = tmp_path_factory.mktemp("classes")
    files = {"shop_person.proto": PERSON, "shop_order.proto": ORDER}
    for name, text in files.items():
        (folder / name).write_text(text)
    assert protoc.main(["", f"-I{folder}", f"--python_out={folder}", "-I" + protoc_include(), *files]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("shop_order_pb2")


def protoc_include() -> str:
    return str(importlib.resources.files("grpc_tools") / "_proto")


def produce(sidecar: SidecarWorld, topic: str, *records: Json, **members: Any) -> Json:
    answer = sidecar.produce(topic, *records, keyFormat="STRING", valueFormat="PROTOBUF", **members)
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


def test_values_of_a_raw_schema_with_imports_are_read_by_generated_classes(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, shop: ModuleType
) -> None:
    given = {"valueSchema": ORDER, "valueSchemaReferences": [PERSON_FILE]}
    answer = produce(sidecar, orders, {"key": "k", "value": VALUE}, **given)
    [record] = kafka.read(orders, 1)
    assert record.value is not None
    assert record.value[:6] == b"\0" + answer["value_schema_id"].to_bytes(4, "big") + b"\0"
    order = shop.Order.FromString(record.value[6:])
    assert (order.id, order.buyer.name, order.placed_at.seconds, dict(order.stock)) == (7, "Ann", 1767323045, {"a": 1})
    again = produce(sidecar, orders, {"key": "k", "value": {"id": 8}})
    assert again["value_schema_id"] == answer["value_schema_id"]


def test_any_message_of_the_schema_is_written_by_name_and_read_by_its_indexes(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, shop: ModuleType
) -> None:
    given = {"valueSchema": ORDER, "valueSchemaReferences": [PERSON_FILE]}
    produce(sidecar, orders, {"key": "k", "value": {"text": "late"}}, valueSchemaMessage="shop.Refund.Reason", **given)
    produce(sidecar, orders, {"key": "k", "value": {"reason": {"text": "lost"}}}, valueSchemaMessage="Refund")
    reason, refund = [record.value or b"" for record in kafka.read(orders, 2)]
    assert (reason[5:8], shop.Refund.Reason.FromString(reason[8:]).text) == (b"\x04\x02\x00", "late")
    assert (refund[5:7], shop.Refund.FromString(refund[7:]).reason.text) == (b"\x02\x02", "lost")
    instance = sidecar.create(f"{orders}-readers", "indexes", keyFormat="STRING", valueFormat="PROTOBUF")
    instance.subscribe(orders)
    assert [record["value"] for record in instance.read_all(2)] == [{"text": "late"}, {"reason": {"text": "lost"}}]


def test_what_generated_classes_wrote_is_read(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, schema_registry: SchemaRegistry, shop: ModuleType
) -> None:
    """The serializer registers descriptors, not text; the registry gives them back as they are."""
    registry = SchemaRegistryClient({"url": schema_registry.url, "timeout": 30})
    context = SerializationContext(orders, MessageField.VALUE)
    order = shop.Order(id=7, buyer={"name": "Ann"}, stock={"a": 1})
    for message in (order, shop.Refund.Reason(text="late")):
        serializer = ProtobufSerializer(type(message), registry)
        kafka.write(orders, {"key": b"k", "value": serializer(message, context)})
    instance = sidecar.create(f"{orders}-readers", "classes", keyFormat="STRING", valueFormat="PROTOBUF")
    instance.subscribe(orders)
    values = [record["value"] for record in instance.read_all(2)]
    assert values == [{"id": "7", "buyer": {"name": "Ann"}, "stock": {"a": 1}}, {"text": "late"}]
    [place] = produce(sidecar, orders, {"key": "k", "value": VALUE})["offsets"]  # with the latest schema, theirs
    records = {(record.partition, record.offset): record.value for record in kafka.read(orders, 3)}
    written = records[place["partition"], place["offset"]] or b""
    assert shop.Order.FromString(written[6:]).buyer.name == "Ann"


@pytest.mark.parametrize(
    ("value", "members", "code", "said"),
    [
        ({"id": 1, "buyer": {"age": 3}}, {}, "ERR12206", "index in batch : 1 format with message value: #/buyer/age:"),
        ({"id": "x"}, {}, "ERR12206", "#/id: string found, int64 expected"),
        ({}, {"valueSchemaMessage": "Nope"}, "ERR12208", "has no message 'Nope'; it has shop.Order, shop.Refund"),
    ],
)
def test_what_does_not_fit_sends_nothing_and_is_named(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, value: Json, members: Json, code: str, said: str
) -> None:
    given = {"valueSchema": ORDER, "valueSchemaReferences": [PERSON_FILE], **members}
    answer = sidecar.produce(
        orders, {"key": "k", "value": {}}, {"key": "k", "value": value}, valueFormat="PROTOBUF", **given
    )
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
    assert said in answer.json()["description"]
    assert kafka.read(orders, 0) == []
