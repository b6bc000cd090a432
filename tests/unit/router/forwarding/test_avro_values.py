"""Avro values by schema id, and what happens when the registry can't say what an id means."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from mesh.judging.sight import Sight, holds
from mesh.judging.values import UnreadableError
from mesh.record_expressions import Expression
from mesh.rpc import record_rules
from services.router.forwarding.judging.registry import ATTEMPTS, MOST_PATIENT, UNKNOWN_FOR, SchemaRegistry
from services.router.forwarding.judging.values import AvroReader, reader_of
from services.router.forwarding.records import NotNowError
from tests.fixtures.small_registry import SmallRegistry
from tests.unit.router.forwarding.records import Sample

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "country", "type": "string"}, {"name": "amount", "type": ["null", "double"]}],
}


def avro(schema: dict[str, Any], value: object, schema_id: int = 7) -> bytes:
    """As Confluent's serializers write it."""
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + data.getvalue()


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with SmallRegistry({7: {"schema": json.dumps(ORDER)}}) as registry:
        yield registry


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def client(registry: SmallRegistry, pauses: list[float], now: list[float]) -> Iterator[SchemaRegistry]:
    client = SchemaRegistry(registry.url, clock=lambda: now[0], sleep=pauses.append)
    yield client
    client.close()


@pytest.fixture
def read(client: SchemaRegistry) -> Callable[[bytes], object]:
    return AvroReader(client)


def test_a_schema_is_asked_for_once(registry: SmallRegistry, read: Callable[[bytes], object]) -> None:
    for amount in (1.5, None):
        value = {"country": "DE", "amount": amount}
        assert read(avro(ORDER, value)) == value
    assert registry.asked == ["/schemas/ids/7"]


def test_expressions_see_the_fields(read: Callable[[bytes], object]) -> None:
    expression = Expression("value.country == 'DE' && value.amount > 1")
    record = Sample(value_=avro(ORDER, {"country": "DE", "amount": 1.5}))
    assert holds(expression, Sight([expression], read)(record))


def test_schemas_that_refer_to_others(registry: SmallRegistry, read: Callable[[bytes], object]) -> None:
    country = {"type": "enum", "name": "Country", "symbols": ["DE", "FR"]}
    customer = {"type": "record", "name": "Customer", "fields": [{"name": "country", "type": "Country"}]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "Customer"}]}
    registry.versions["country/eu", 3] = {"schema": json.dumps(country)}
    registry.versions["customer", 1] = {
        "schema": json.dumps(customer),
        "references": [{"name": "Country", "subject": "country/eu", "version": 3}],
    }
    registry.schemas[8] = {
        "schema": json.dumps(order),
        "references": [{"name": "Customer", "subject": "customer", "version": 1}],
    }
    registry.versions["country%2Feu", 3] = registry.versions["country/eu", 3]
    named: dict[str, Any] = {}
    for schema in (country, customer):
        fastavro.parse_schema(schema, named_schemas=named)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(order, named_schemas=named), {"customer": {"country": "FR"}})
    assert read(b"\0\0\0\0\x08" + data.getvalue()) == {"customer": {"country": "FR"}}


def test_logical_types_become_what_expressions_compare(
    registry: SmallRegistry, read: Callable[[bytes], object]
) -> None:
    fields = {
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "day": {"type": "int", "logicalType": "date"},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "id": {"type": "string", "logicalType": "uuid"},
    }
    schema = {"type": "record", "name": "Sale", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    registry.schemas[7] = {"schema": json.dumps(schema)}
    value = {
        "price": Decimal("12.50"),
        "day": date(2026, 11, 21),
        "at": datetime(2026, 11, 21, 20, 59, tzinfo=UTC),
        "id": "6f0d6a0e-0000-4000-8000-000000000000",
    }
    expression = Expression(
        "value.price == 12.5 && value.day == '2026-11-21' && value.id.startsWith('6f0d') "
        "&& timestamp(value.at) > timestamp('2026-11-21T00:00:00Z')"
    )
    assert holds(expression, Sight([expression], read)(Sample(value_=avro(schema, value))))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "does not begin with byte 0"),
        (b'{"country":"DE"}', "does not begin with byte 0"),
        (b"\0\0\0\0", "does not begin with byte 0"),
        (b"\0\0\0\0\x07", "not of its Avro schema 7"),
        (b"\0\0\0\0\x07\xff\xff\xff\xff", "not of its Avro schema 7"),
        (b"\0\0\0\0\x09abc", "the schema registry has no schema 9"),
    ],
)
def test_unreadable(read: Callable[[bytes], object], value: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        read(value)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}, "is of type PROTOBUF"),
        ({"schema": '{"type":"nothing"}'}, "can't be read as Avro"),
        ({"schema": "{"}, "can't be read as Avro"),
        ({"schema": '"A"', "references": [{"name": "A", "subject": "a", "version": 1}]}, "no version 1 of subject 'a'"),
    ],
)
def test_schemas_that_are_of_no_use(
    registry: SmallRegistry, read: Callable[[bytes], object], answer: dict[str, Any], reason: str
) -> None:
    registry.schemas[7] = answer
    with pytest.raises(UnreadableError, match=reason):
        read(b"\0\0\0\0\x07")


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "nothing", "type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": EMPTY},
        {"type": "map", "values": ["null", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}]},
        {
            "type": "record",
            "name": "Tree",
            "fields": [
                {"name": "one", "type": ["null", "Tree"]},
                {"name": "empty", "type": EMPTY},
                {"name": "many", "type": {"type": "array", "items": "Empty"}},
            ],
        },
    ],
)
def test_a_few_bytes_can_not_stand_for_a_list_that_fills_the_memory(
    registry: SmallRegistry, read: Callable[[bytes], object], schema: dict[str, Any]
) -> None:
    registry.schemas[7] = {"schema": json.dumps(schema)}
    with pytest.raises(UnreadableError, match="lists of what takes no bytes"):
        read(b"\0\0\0\0\x07" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")


def test_lists_of_records_that_hold_themselves(registry: SmallRegistry, read: Callable[[bytes], object]) -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "of", "type": {"type": "array", "items": "Tree"}}]}
    registry.schemas[7] = {"schema": json.dumps(tree)}
    assert read(avro(tree, {"of": [{"of": []}]})) == {"of": [{"of": []}]}


def test_an_unknown_id_is_asked_for_again_and_then_counts_as_unknown_for_a_while(
    registry: SmallRegistry, read: Callable[[bytes], object], pauses: list[float], now: list[float]
) -> None:
    value = avro(ORDER, {"country": "DE", "amount": 1.0}, 9)
    for _ in range(3):
        with pytest.raises(UnreadableError, match="no schema 9"):
            read(value)
    assert registry.asked == ["/schemas/ids/9"] * ATTEMPTS
    assert pauses == [0.2, 0.4]
    registry.schemas[9] = registry.schemas[7]
    now[0] = UNKNOWN_FOR
    assert read(value) == {"country": "DE", "amount": 1.0}


def test_where_many_ids_are_unknown_nobody_waits_for_each(
    registry: SmallRegistry, read: Callable[[bytes], object], pauses: list[float]
) -> None:
    for number in range(100, 100 + 2 * MOST_PATIENT):
        with pytest.raises(UnreadableError):
            read(b"\0" + number.to_bytes(4, "big"))
    assert len(pauses) == MOST_PATIENT * (ATTEMPTS - 1)
    assert len(registry.asked) == MOST_PATIENT * ATTEMPTS + MOST_PATIENT


def test_an_answer_that_comes_late_is_waited_for(registry: SmallRegistry, read: Callable[[bytes], object]) -> None:
    registry.failures = [503, 503]
    assert read(avro(ORDER, {"country": "DE", "amount": None})) == {"country": "DE", "amount": None}


@pytest.mark.parametrize("status", [500, 503, 429, 401])
def test_a_registry_that_does_not_serve_us_is_waited_for(
    registry: SmallRegistry, read: Callable[[bytes], object], status: int
) -> None:
    registry.failures = [status] * ATTEMPTS
    with pytest.raises(NotNowError, match=f"schema registry at http.* answers {status}"):
        read(avro(ORDER, {"country": "DE", "amount": None}))
    assert read(avro(ORDER, {"country": "DE", "amount": None})) == {"country": "DE", "amount": None}


def test_a_wrong_address_is_no_unknown_schema(registry: SmallRegistry, pauses: list[float]) -> None:
    client = SchemaRegistry(f"{registry.url}/elsewhere", sleep=pauses.append)
    with pytest.raises(NotNowError, match="answers 404"):
        client.schema(7)


def test_a_registry_that_is_not_there_is_waited_for(pauses: list[float]) -> None:
    with pytest.raises(NotNowError, match="does not answer"):
        SchemaRegistry("http://127.0.0.1:1", sleep=pauses.append).schema(7)


def test_the_registry_is_told_who_asks(registry: SmallRegistry, tmp_path: Path) -> None:
    registry.user_info = "mesh:hunter2"
    secret = tmp_path / "registry"
    client = SchemaRegistry(registry.url, f"${{file:{secret}}}", sleep=lambda _: None)
    with pytest.raises(NotNowError, match="can't be read"):
        client.schema(7)
    secret.write_text("mesh:wrong\n")
    with pytest.raises(NotNowError) as error:
        client.schema(7)
    assert "401" in str(error.value)
    assert "wrong" not in str(error.value)
    secret.write_text("mesh:hunter2\n")
    assert client.schema(7).id == 7


def test_without_a_registry_avro_is_not_read() -> None:
    with pytest.raises(NotNowError, match="SCHEMA_REGISTRY_URL"):
        reader_of(record_rules.VALUE_FORMAT_AVRO, None)(b"\0\0\0\0\x07")
