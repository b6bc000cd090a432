"""Which values are valid by their schemas, what a fault says of them, and what bombs do."""

from __future__ import annotations

import io
import json
import socket
import time
from typing import Any

import fastavro
import pytest

from mesh.schemas.protobuf import message_path
from mesh.schemas.schema import RegisteredSchema, SchemaError, SchemaKind
from services.gateway.requests.records import content_checks
from services.gateway.requests.records.content_checks import check_of

SECRET = "4111-1111"
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {
            "name": "customer",
            "type": {"type": "record", "name": "Customer", "fields": [{"name": "card", "type": "string"}]},
        },
    ],
}
PROTO = """
syntax = "proto3";
message Order {
  message Line { int32 amount = 1; }
  string id = 1;
  repeated Line lines = 2;
  map<string, Line> by_name = 3;
}
message Other { string name = 9; }
"""


def schema(kind: SchemaKind, text: str | dict[str, Any], **references: str) -> RegisteredSchema:
    others = {name: RegisteredSchema(0, kind, each) for name, each in references.items()}
    return RegisteredSchema(7, kind, text if isinstance(text, str) else json.dumps(text), others)


def written(value: object, parsed: Any = ORDER) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(parsed), value)
    return out.getvalue()


GOOD = written({"id": "a", "customer": {"card": SECRET}})


def in_json(text: str | dict[str, Any], value: object, **references: str) -> str | None:
    return check_of(schema(SchemaKind.JSON, text, **references))(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        (GOOD, None),
        (GOOD + b"x", "1 of 13 bytes follow it"),
        (GOOD[:-1], "#/customer/card can't be read as Avro"),
        (GOOD[:1], "#/id can't be read as Avro"),
        (b"", "#/id can't be read as Avro"),
    ],
)
def test_avro_is_read_as_a_whole_and_the_fault_names_the_field(payload: bytes, place: str | None) -> None:
    fault = check_of(schema(SchemaKind.AVRO, ORDER))(payload)
    assert fault is None if place is None else fault is not None and place in fault and SECRET not in fault


def test_avro_takes_types_of_schemas_that_it_refers_to() -> None:
    customer = ORDER["fields"][1]["type"]
    order = {
        "type": "record",
        "name": "Order",
        "fields": [ORDER["fields"][0], {"name": "customer", "type": "Customer"}],
    }
    check = check_of(schema(SchemaKind.AVRO, order, Customer=json.dumps(customer)))
    assert check(GOOD) is None
    assert check(GOOD[:-1]) is not None


@pytest.mark.parametrize(
    ("text", "value", "fault"),
    [
        ({"properties": {"a": {"maximum": 5}}}, {"a": 9_999_999}, "#/a does not keep to maximum 5"),
        ({"type": "object"}, SECRET, '# does not keep to type ["object"]'),
        ({"additionalProperties": False}, {SECRET: 1}, "# does not keep to falseSchema"),
        ({"additionalProperties": {"type": "integer"}}, {SECRET: SECRET}, '#/* does not keep to type ["integer"]'),
        ({"propertyNames": {"pattern": "^a"}}, {SECRET: 1}, "# does not keep to propertyNames"),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": SECRET}, '#/a does not keep to enum ["x", "y"]'),
        ({"properties": {"a": {"const": 1}}}, {"a": SECRET}, "#/a does not keep to const 1"),
        ({"required": ["b"]}, {SECRET: SECRET}, '# does not keep to required "b"'),
        ({"items": {"pattern": "^a$"}}, ["a", SECRET], '#/1 does not keep to pattern "^a$"'),
        ({"uniqueItems": True}, [SECRET, SECRET], "# does not keep to uniqueItems"),
        ({"not": {"type": "string"}}, SECRET, "# does not keep to not"),
        ({"anyOf": [{"const": 1}, {"const": 2}]}, SECRET, "# does not keep to anyOf"),
        ({"contains": {"const": 3}}, [SECRET], "# does not keep to contains"),
    ],
)
def test_json_faults_say_the_place_and_the_keyword_and_nothing_of_the_value(
    text: dict[str, Any], value: object, fault: str
) -> None:
    assert in_json(text, value) == f"is not valid by schema 7: {fault}"


def test_unevaluated_properties_and_text_that_is_no_json_are_not_shown_either() -> None:
    newest = {"$schema": "https://json-schema.org/draft/2020-12/schema", "unevaluatedProperties": False}
    fault = in_json(newest, {SECRET: SECRET})
    assert fault is not None and "unevaluatedProperties" in fault and SECRET not in fault
    check = check_of(schema(SchemaKind.JSON, "{}"))
    for payload in (SECRET.encode(), f'"{SECRET}'.encode(), b"\xff" + SECRET.encode(), b""):
        fault = check(payload)
        assert fault is not None and "it is no JSON" in fault and SECRET not in fault


def test_json_refers_to_schemas_of_the_registry_by_their_names() -> None:
    for main in ({"$ref": "price.json"}, {"$id": "http://example.test/a/main.json", "allOf": [{"$ref": "price.json"}]}):
        price = '{"type": "integer"}'
        assert in_json(main, 5, **{"price.json": price}) is None
        fault = in_json(main, SECRET, **{"price.json": price})
        assert fault is not None and '# does not keep to type ["integer"]' in fault


def test_a_reference_to_the_net_is_never_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for main, others in (
            ({"$ref": url}, {}),
            ({"$ref": "b"}, {"b": json.dumps({"$ref": url})}),
            ({"$schema": url}, {}),
        ):
            with pytest.raises(SchemaError, match="no JSON Schema"):
                in_json(main, 1, **others)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "((a{1,1000}){1,1000}){1,1000}"])
def test_a_pattern_that_no_linear_engine_of_bounded_size_has_makes_the_schema_useless(pattern: str) -> None:
    with pytest.raises(SchemaError, match='#/pattern: it is not a "regex"'):
        in_json({"pattern": pattern}, "a")


def test_a_pattern_takes_time_that_grows_with_the_text_alone() -> None:
    began = time.process_time()
    assert in_json({"pattern": "^(a+)+$"}, "a" * 1_000_000 + "!") is not None
    assert time.process_time() - began < 2


PAYLOAD = message_path.written((0,))
LINES = PAYLOAD + b"\x0a\x01a" + b"\x12\x02\x08\x05"


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        (PAYLOAD, None),
        (LINES, None),
        (message_path.written((1,)) + b"\x4a\x01a", None),
        (message_path.written((4,)), "[4] name no message"),
        (b"", "cut off"),
        (PAYLOAD + b"\x0a\x09" + SECRET.encode()[:3], "not a Protobuf message Order"),
        (PAYLOAD + b"\x4a\x03" + SECRET.encode()[:3], "# has a field that its message lacks"),
        (LINES + b"\x12\x02\x48\x01", "#/lines/1 has a field that its message lacks"),
        (PAYLOAD + b"\x1a\x09\x0a\x03" + SECRET.encode()[:3] + b"\x12\x02\x48\x01", "#/by_name/* has a field"),
    ],
)
def test_protobuf_has_no_field_that_its_schema_lacks(payload: bytes, place: str | None) -> None:
    fault = check_of(schema(SchemaKind.PROTOBUF, PROTO))(payload)
    assert fault is None if place is None else fault is not None and place in fault and SECRET[:3] not in fault


def test_protobuf_has_all_required_fields_and_types_of_other_files() -> None:
    main = 'syntax = "proto2"; import "line.proto"; message Order { required string id = 1; optional Line line = 2; }'
    check = check_of(
        schema(SchemaKind.PROTOBUF, main, **{"line.proto": 'syntax = "proto3"; message Line { int32 n = 1; }'})
    )
    assert check(PAYLOAD + b"\x0a\x01a\x12\x02\x08\x05") is None
    assert check(PAYLOAD) == "is not valid by schema 7: it lacks the required field id"


def test_what_is_nested_deeply_is_refused() -> None:
    nested = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    deep_message = b""
    for _ in range(60):
        deep_message = b"\x12" + bytes([len(deep_message)]) + deep_message
    node = 'syntax = "proto3"; message N { N n = 2; }'
    for kind, text, payload in (
        (SchemaKind.AVRO, json.dumps(nested), b"\x02" * 1_000_000),
        (SchemaKind.JSON, "{}", b"[" * 1_000_000),
        (SchemaKind.JSON, '{"items": {"type": "object"}}', b"[" * 700 + b"]" * 700),
    ):
        assert check_of(schema(kind, text))(payload) is not None
    check = check_of(schema(SchemaKind.PROTOBUF, node))
    assert check(PAYLOAD + deep_message) is None
    for _ in range(60):
        size = len(deep_message)
        deep_message = b"\x12" + bytes([size & 0x7F | 0x80, size >> 7]) + deep_message
    assert check(PAYLOAD + deep_message) is not None
    with pytest.raises(SchemaError):
        check_of(schema(SchemaKind.JSON, '{"not":' * 5_000 + "true" + "}" * 5_000))


def test_lists_that_say_to_be_giant_take_no_memory() -> None:
    giant = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    for items in ("boolean", "string"):
        assert check_of(schema(SchemaKind.AVRO, {"type": "array", "items": items}))(giant) is not None
    assert check_of(schema(SchemaKind.AVRO, '"string"'))(giant) is not None
    with pytest.raises(SchemaError, match="lists of what takes no bytes"):
        check_of(schema(SchemaKind.AVRO, {"type": "array", "items": "null"}))


def test_a_large_value_that_is_not_valid_takes_no_longer_than_one_that_is() -> None:
    """The place of its fault is not looked for."""
    count = 2_000_000
    head = bytearray()
    left = count << 1
    while left > 0x7F:
        head.append(left & 0x7F | 0x80)
        left >>= 7
    head.append(left)
    many = check_of(schema(SchemaKind.AVRO, {"type": "array", "items": "boolean"}))
    assert many(bytes(head) + bytes(count + 1)) is None
    began = time.process_time()
    fault = many(bytes(head) + bytes(count - 1))
    assert time.process_time() - began < 1
    assert fault is not None and "# can't be read as Avro" in fault
    repeated = check_of(schema(SchemaKind.PROTOBUF, PROTO))
    began = time.process_time()
    fault = repeated(PAYLOAD + b"\x12\x00" * count + b"\x48\x01")
    assert time.process_time() - began < 3
    assert fault is not None and "# has a field that its message lacks" in fault
    nested = {"type": "record", "name": "N", "fields": [{"name": "n", "type": {"type": "array", "items": "N"}}]}
    fault = check_of(schema(SchemaKind.AVRO, nested))(bytes(head) + bytes(count + 1))
    assert fault is not None and "by a schema that contains itself" in fault


def test_a_value_that_is_too_large_to_be_checked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_checks, "LARGEST", 10)
    check = check_of(schema(SchemaKind.JSON, "{}"))
    assert check(b'"12345678"') is None
    assert check(b'"123456789"') == "has 11 bytes, and 10 can be checked"
