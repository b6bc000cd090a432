"""JSON with a schema: what fits, what is said about what does not, and schemas that refer to others."""

import json
import time

import orjson
import pytest

from mesh.schemas.schema import RegisteredSchema, SchemaError, SchemaKind
from services.sidecar.formats import FormatError
from services.sidecar.formats.json_schema import JsonSchemaCodec, codec_of

COUNT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
        "a/b": {"type": "object"},
    },
    "required": ["count"],
    "additionalProperties": False,
}


def registered(schema: object, references: dict[str, RegisteredSchema] | None = None) -> RegisteredSchema:
    return RegisteredSchema(1, SchemaKind.JSON, json.dumps(schema), references or {})


def codec(schema: object, **references: object) -> JsonSchemaCodec:
    return codec_of(registered(schema, {name: registered(given) for name, given in references.items()}))


def misfit(codec_: JsonSchemaCodec, value: object) -> str:
    with pytest.raises(FormatError) as raised:
        codec_.encode(value)
    return str(raised.value)


def test_what_fits_is_written_as_it_is() -> None:
    assert codec(COUNT).encode({"count": 2}) == b'{"count":2}'


def test_what_is_read_goes_into_the_answer_as_it_stands() -> None:
    text = b'{"count":2,"exactly":12345678901234567890123}'
    assert orjson.dumps(codec(COUNT).decode(text)) == text


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(FormatError, match="not JSON"):
        codec(COUNT).decode(b"{oops")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"count": "no"}, "#/count: expected type: Integer, found: String"),
        ({"count": 1, "tags": ["a", 2]}, "#/tags/1: expected type: String, found: Integer"),
        ({"count": 1, "a/b": []}, "#/a~1b: expected type: JSONObject, found: JSONArray"),
        ([], "#: expected type: JSONObject, found: JSONArray"),
        ({"count": -1}, "#/count: -1 is less than the minimum of 0"),
        ({}, "#: 'count' is a required property"),
        ({"count": 1, "extra": 1}, "#: Additional properties are not allowed ('extra' was unexpected)"),
    ],
)
def test_the_place_and_the_reason_are_named(value: object, message: str) -> None:
    assert misfit(codec(COUNT), value) == message


def test_of_several_ways_the_one_that_was_meant_is_explained() -> None:
    apple = {"properties": {"kind": {"const": "apple"}, "weight": {"type": "integer"}}, "required": ["kind", "weight"]}
    stone = {"type": "string"}
    assert misfit(codec({"anyOf": [stone, apple]}), {"kind": "apple", "weight": "100 g"}) == (
        "#/weight: expected type: Integer, found: String"
    )


@pytest.mark.parametrize(
    ("draft", "fits", "fits_not"),
    [
        ("http://json-schema.org/draft-04/schema#", 6, 5),
        ("http://json-schema.org/draft-07/schema#", 6, 5),
        ("https://json-schema.org/draft/2020-12/schema", 6, 5),
    ],
)
def test_drafts_have_their_own_rules(draft: str, fits: int, fits_not: int) -> None:
    bound = {"minimum": 5, "exclusiveMinimum": True} if "draft-04" in draft else {"exclusiveMinimum": 5}
    one = codec({"$schema": draft, "type": "integer", **bound})
    assert one.encode(fits) == b"6"
    assert "5" in misfit(one, fits_not)


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("color.json", {}),
        ("color.json", {"$id": "http://shop.example/schemas/apple.json"}),
        ("http://shop.example/color.json", {}),
    ],
)
def test_schemas_refer_to_others_by_name(name: str, root: dict[str, str]) -> None:
    apple = {**root, "properties": {"color": {"$ref": name}}}
    one = codec(apple, **{name: {"enum": ["red", "green"]}})
    assert one.encode({"color": "red"}) == b'{"color":"red"}'
    assert misfit(one, {"color": "blue"}).startswith("#/color: 'blue' is not one of")


def test_and_through_others_and_by_what_these_call_themselves() -> None:
    one = codec(
        {"properties": {"crate": {"$ref": "crate.json"}}},
        **{
            "http://shop.example/color.json": {"$id": "http://shop.example/color.json", "enum": ["red"]},
            "crate.json": {"items": {"$ref": "http://shop.example/color.json"}},
        },
    )
    assert misfit(one, {"crate": ["red", "blue"]}).startswith("#/crate/1: ")


def test_a_reference_that_nobody_gave_is_named_and_not_fetched() -> None:
    assert "nowhere.json" in misfit(codec({"$ref": "http://127.0.0.1:1/nowhere.json"}), 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{nope", "not|no JSON Schema"), ("[]", "an object"), ('{"type": "whole"}', "#/type: 'whole'")],
)
def test_what_is_no_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        codec_of(RegisteredSchema(1, SchemaKind.JSON, text))


def test_a_schema_of_another_language_is_refused_as_a_reference() -> None:
    avro = RegisteredSchema(2, SchemaKind.AVRO, '"string"')
    with pytest.raises(SchemaError, match="which is AVRO"):
        codec_of(registered({"$ref": "other"}, {"other": avro}))


EVIL = "a" * 40 + "!"
"""Python's own engine goes back and forth over this text for hours."""


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, EVIL, "does not match"),
        ({"patternProperties": {"^(a+)+$": False}, "additionalProperties": False}, {EVIL: 1}, "unexpected"),
    ],
)
def test_a_pattern_takes_time_that_grows_with_the_text_alone(schema: object, value: object, reason: str) -> None:
    began = time.process_time()
    with pytest.raises(FormatError, match=reason):
        codec(schema).encode(value)
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"name": {"pattern": "(?=a)b"}}},
        {"patternProperties": {"(?!a)b": True}},
        {"anyOf": [{"pattern": "(a)\\1"}]},
    ],
)
def test_a_pattern_that_has_to_go_back_is_refused_with_its_schema(schema: object) -> None:
    with pytest.raises(SchemaError, match="without look-around and back-references"):
        codec(schema)
