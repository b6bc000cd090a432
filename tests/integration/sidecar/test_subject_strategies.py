"""Subjects named after topics, records or both, for all formats with schemas, against a real registry."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.fixtures.schema_registry import SchemaRegistry
from tests.integration.sidecar.world import Kafka, SidecarWorld, started

VALUES: dict[str, Any] = {"AVRO": {"n": 1}, "JSONSCHEMA": {"n": 1}, "PROTOBUF": {"n": 1}}


def schema(format_: str, name: str) -> str:
    """A schema of a record of this name, in namespace or package `shop` where there is one."""
    match format_:
        case "AVRO":
            fields = [{"name": "n", "type": "int"}]
            return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})
        case "JSONSCHEMA":
            return json.dumps({"title": f"shop.{name}", "type": "object", "properties": {"n": {"type": "integer"}}})
        case _:
            return f'syntax = "proto3"; package shop; message {name} {{ int32 n = 1; }}'


def strategies(world: SidecarWorld, registry: SchemaRegistryClient, topic: str, format_: str) -> None:
    name = f"Order{uuid.uuid4().hex}"
    for strategy, subject in (
        ("RecordNameStrategy", f"shop.{name}"),
        ("TopicRecordNameStrategy", f"{topic}-shop.{name}"),
        ("TopicNameStrategy", f"{topic}-key"),
    ):
        answer = world.produce(
            topic,
            {"key": VALUES[format_], "value": "v"},
            keyFormat=format_,
            keySchema=schema(format_, name),
            keySubjectStrategy=strategy,
            valueFormat="string",
        )
        assert answer.status_code == 200, answer.text
        assert registry.get_latest_version(subject).schema_id == answer.json()["key_schema_id"]


@pytest.mark.parametrize("format_", VALUES)
def test_a_request_says_what_its_subject_is_named_after(
    kafka: Kafka, schema_registry: SchemaRegistry, orders: str, format_: str
) -> None:
    registry = SchemaRegistryClient({"url": schema_registry.url, "timeout": 30})
    with started(kafka.bootstrap, schema_registry_url=schema_registry.url, schema_registry_timeout_ms=30_000) as world:
        strategies(world, registry, orders, format_)


def test_the_sidecars_own_strategy_counts_for_requests_that_say_nothing(
    kafka: Kafka, schema_registry: SchemaRegistry, orders: str
) -> None:
    registry = SchemaRegistryClient({"url": schema_registry.url, "timeout": 30})
    name = f"Order{uuid.uuid4().hex}"
    given: dict[str, Any] = {"schema_registry_url": schema_registry.url, "schema_registry_timeout_ms": 30_000}
    given |= {"value_subject_strategy": "RecordNameStrategy", "value_format": "avro"}
    with started(kafka.bootstrap, **given) as world:
        asked = {"valueFormat": "AVRO", "valueSchema": schema("AVRO", name)}
        answer = world.produce(orders, {"value": {"n": 1}}, **asked)
        assert answer.status_code == 200, answer.text
        assert registry.get_latest_version(f"shop.{name}").schema_id == answer.json()["value_schema_id"]
        named = world.produce(orders, {"value": {"n": 1}}, valueSchemaSubject=f"shop.{name}")
        assert named.status_code == 200, named.text
        unnamed = world.produce(orders, {"value": {"n": 1}})
        assert (unnamed.status_code, unnamed.json()["code"]) == (400, "ERR12208")
        assert "send valueSchema or valueSchemaSubject" in unnamed.json()["description"]
        tombstone = world.produce(orders, {"key": "k", "value": None})
        assert tombstone.status_code == 200, tombstone.text
