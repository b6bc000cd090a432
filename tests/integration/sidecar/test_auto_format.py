"""Format auto on reads: each record shows the format that it has, against a real registry and real Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.fixtures.backend import Backend
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.schema_registry import SchemaRegistry
from tests.integration.sidecar.reactive_world import settings
from tests.integration.sidecar.world import Instance, Json, Kafka, SidecarWorld, started

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
COUNT = json.dumps({"type": "object", "properties": {"count": {"type": "integer"}}})
PROTO = 'syntax = "proto3"; message Price { int32 cents = 1; }'
UNKNOWN = b"\0\0\x0f\xff\xffnobody's"


@pytest.fixture(scope="module")
def shared(kafka_c1: KafkaCluster, schema_registry: SchemaRegistry) -> Iterator[SidecarWorld]:
    registry = {"schema_registry_url": schema_registry.url, "schema_registry_timeout_ms": 30_000}
    with started(kafka_c1.bootstrap, **registry) as world:
        yield world


def written(world: SidecarWorld, kafka: Kafka, topic: str) -> None:
    """A record of each format, in one partition."""
    for format_, schema, value in (
        ("AVRO", ORDER, {"id": 1}),
        ("JSONSCHEMA", COUNT, {"count": 2}),
        ("PROTOBUF", PROTO, {"cents": 3}),
    ):
        subject = {"valueSchemaSubject": f"{topic}-{format_}"}
        answer = world.produce(
            topic, {"key": "k", "value": value, "partition": 0}, valueFormat=format_, valueSchema=schema, **subject
        )
        assert answer.status_code == 200, answer.text
    plain = (b'{"n": 4}', b"a text", b"\xff", UNKNOWN, None)
    kafka.write(topic, *({"key": b"\0\1", "value": value, "partition": 0} for value in plain))


SHOWN = [
    ("avro", {"id": 1}),
    ("jsonschema", {"count": 2}),
    ("protobuf", {"cents": 3}),
    ("json", {"n": 4}),
    ("string", "a text"),
    ("binary", "/w=="),
    ("binary", "AAAP//9ub2JvZHkncw=="),
    (None, None),
]


def read(instance: Instance, **query: object) -> list[Json]:
    return instance.read_all(len(SHOWN), **query)


def values(records: list[Json]) -> list[tuple[object, object]]:
    return [(one.get("valueFormat"), one.get("value")) for one in records]


def test_each_record_shows_its_format_by_a_read_or_by_its_instance(
    shared: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    written(shared, kafka, orders)
    usual = shared.create(group, "c1", format="string")
    usual.assign({"topic": orders, "partition": 0})
    records = read(usual, format="auto")
    assert values(records) == SHOWN
    assert [(one["keyFormat"], one["key"]) for one in records] == [("string", "k")] * 3 + [("binary", "AAE=")] * 5
    automatic = shared.create(group, "c2", keyFormat="binary", valueFormat="AUTO")
    automatic.assign({"topic": orders, "partition": 0})
    records = read(automatic)
    assert values(records) == SHOWN
    assert all("keyFormat" not in one for one in records)
    events = shared.create(group, "c3", format="auto")
    events.assign({"topic": orders, "partition": 0})
    answer = shared.http.get(f"{events.path}/records", headers={"Accept": "application/cloudevents-batch+json"})
    content = [one.get("datacontenttype") for one in answer.json()]
    assert content == ["application/json"] * 4 + ["text/plain"] + ["application/octet-stream"] * 2 + [None]


def test_nothing_is_written_in_format_auto(shared: SidecarWorld, orders: str) -> None:
    answer = shared.produce(orders, {"value": 1}, valueFormat="auto")
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR11004")


def test_a_backend_gets_records_with_their_formats(
    shared: SidecarWorld, kafka: Kafka, schema_registry: SchemaRegistry, orders: str, group: str
) -> None:
    written(shared, kafka, orders)
    with Backend().running() as backend:
        given = {**settings(backend, orders, group), "consumer_value_format": "auto"}
        with started(kafka.bootstrap, **given, schema_registry_url=schema_registry.url):
            assert values(backend.wait_for_records(len(SHOWN))) == SHOWN
