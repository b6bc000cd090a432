"""Avro as JSON: what may be written, what is read back, and what is said about a value that does not fit."""

import contextlib
import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.schemas.schema import RegisteredSchema, SchemaError, SchemaKind
from services.sidecar.formats import FormatError
from services.sidecar.formats.avro import AvroCodec, codec_of

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}


def registered(schema: object, **references: RegisteredSchema) -> RegisteredSchema:
    return RegisteredSchema(1, SchemaKind.AVRO, json.dumps(schema), references)


def codec(schema: object, *, tagged: bool = True) -> AvroCodec:
    return codec_of(registered(schema), tagged_unions=tagged)


def back(schema: object, value: object, *, tagged: bool = True) -> object:
    """A value after its way to Kafka and back."""
    one = codec(schema, tagged=tagged)
    return one.decode(one.encode(value))


def misfit(schema: object, value: object) -> str:
    with pytest.raises(FormatError) as raised:
        codec(schema).encode(value)
    return str(raised.value)


def test_the_bytes_are_those_of_avro() -> None:
    assert codec({"type": "record", "name": "C", "fields": [{"name": "count", "type": "int"}]}).encode(
        {"count": 2}
    ) == bytes([4])
    assert codec("string").encode("k") == b"\x02k"
    assert codec(ORDER).encode({"id": 1, "note": {"string": "tagged"}, "tags": []}) == b"\x02\x02\x0ctagged\x00"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("double", 0.1),
        ("double", "NaN"),
        ("double", "-Infinity"),
        ("float", 0.1),
        ("float", "Infinity"),
        ("string", "ß€😀"),
        ("bytes", "\x00aÿ"),
        ({"type": "fixed", "name": "F", "size": 3}, "\x00aÿ"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "array", "items": "bytes"}, ["ÿ", ""]),
        ({"type": "map", "values": "double"}, {"a": 1.5, "": -0.25}),
        ({"type": {"type": "string", "avro.java.string": "String"}}, "text"),
    ],
)
def test_values_come_back_as_they_went(schema: object, value: object) -> None:
    assert back(schema, value) == value


def test_what_fastavro_writes_is_read_and_the_other_way_round() -> None:
    parsed = fastavro.parse_schema(ORDER)
    assert codec(ORDER).decode(fastavro_bytes(parsed, {"id": 7, "note": "n", "tags": ["a"]})) == {
        "id": 7,
        "note": {"string": "n"},
        "tags": ["a"],
    }


def fastavro_bytes(schema: Any, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


# --- unions

NUMBERS = ["null", "string", "long", "double", "bytes"]


@pytest.mark.parametrize(
    ("given_value", "tagged", "plain"),
    [
        (None, None, None),
        ({"string": "x"}, {"string": "x"}, "x"),
        ("x", {"string": "x"}, "x"),
        ({"bytes": "ÿ"}, {"bytes": "ÿ"}, "ÿ"),
        (5, {"long": 5}, 5),
        ({"double": 5}, {"double": 5.0}, 5.0),
        (5.5, {"double": 5.5}, 5.5),
        (2**70, {"double": float(2**70)}, float(2**70)),
    ],
)
def test_unions_are_written_tagged_or_plain_and_read_as_asked(given_value: Any, tagged: Any, plain: Any) -> None:
    assert back(NUMBERS, given_value) == tagged
    assert back(NUMBERS, given_value, tagged=False) == plain


RECORDS = [
    "null",
    {"type": "record", "name": "shop.Apple", "fields": [{"name": "red", "type": "boolean"}]},
    {"type": "record", "name": "shop.Pear", "fields": [{"name": "string", "type": "string"}]},
]


@pytest.mark.parametrize(
    ("given_value", "read"),
    [
        ({"shop.Apple": {"red": True}}, {"shop.Apple": {"red": True}}),
        ({"Apple": {"red": True}}, {"shop.Apple": {"red": True}}),
        ({"red": False}, {"shop.Apple": {"red": False}}),
        ({"string": "conference"}, {"shop.Pear": {"string": "conference"}}),
    ],
)
def test_records_in_unions_go_by_full_name_short_name_or_their_fields(given_value: Any, read: Any) -> None:
    assert back(RECORDS, given_value) == read


def test_a_map_whose_only_key_is_the_name_of_a_type_is_still_a_map() -> None:
    assert back(["null", {"type": "map", "values": "int"}], {"map": 5}) == {"map": {"map": 5}}


def test_an_enum_takes_its_symbols_and_a_string_the_rest() -> None:
    schema = [{"type": "enum", "name": "Color", "symbols": ["RED"]}, "string"]
    assert back(schema, "RED") == {"Color": "RED"}
    assert back(schema, "rosy") == {"string": "rosy"}


BASKET = {
    "type": "record",
    "name": "Basket",
    "fields": [
        {"name": "one", "type": ["null", "boolean", "long", "double", "string"]},
        {"name": "many", "type": {"type": "array", "items": ["string", "null", {"type": "map", "values": "long"}]}},
        {"name": "by_name", "type": {"type": "map", "values": ["double", {"type": "array", "items": "string"}]}},
    ],
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
LONGS = st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.fixed_dictionaries(
        {
            "one": st.none() | st.booleans() | LONGS | DOUBLES | TEXT,
            "many": st.lists(TEXT | st.none() | st.dictionaries(TEXT, LONGS, max_size=2), max_size=3),
            "by_name": st.dictionaries(TEXT, DOUBLES | st.lists(TEXT, max_size=2), max_size=3),
        }
    )
)
def test_unions_of_all_shapes_are_the_bytes_that_fastavro_writes_of_plain_values(value: dict[str, Any]) -> None:
    one = codec(BASKET, tagged=False)
    written = one.encode(value)
    assert written == fastavro_bytes(fastavro.parse_schema(BASKET), value)
    assert one.decode(written) == value


# --- defaults, names, recursion


def test_missing_members_get_their_defaults() -> None:
    assert back(ORDER, {"id": 1}) == {"id": 1, "note": None, "tags": []}


@pytest.mark.parametrize(
    ("type_", "default", "read"),
    [
        (["string", "null"], "x", {"string": "x"}),
        ("bytes", "ÿ", "ÿ"),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
        ({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int", "default": 4}]}, {}, {"n": 4}),
    ],
)
def test_defaults_of_all_kinds(type_: object, default: object, read: object) -> None:
    schema = {"type": "record", "name": "D", "fields": [{"name": "d", "type": type_, "default": default}]}
    assert back(schema, {}) == {"d": read}


def test_a_default_that_does_not_fit_counts_only_where_it_is_needed() -> None:
    schema = {"type": "record", "name": "D", "fields": [{"name": "d", "type": "int", "default": "null"}]}
    assert back(schema, {"d": 1}) == {"d": 1}
    assert misfit(schema, {}).startswith("#/d: left out, and its default does not fit its type")


def test_namespaces_are_inherited_and_names_used_again() -> None:
    schema = {
        "type": "record",
        "name": "Outer",
        "namespace": "a.b",
        "fields": [
            {"name": "first", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}},
            {"name": "second", "type": "Size"},
            {"name": "third", "type": ["null", "a.b.Size"]},
            {"name": "other", "type": {"type": "fixed", "namespace": "", "name": "Size", "size": 1}},
        ],
    }
    value = {"first": "S", "second": "L", "third": {"a.b.Size": "S"}, "other": "x"}
    assert back(schema, value) == value


def test_a_list_refers_to_itself() -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "value", "type": "bytes"}, {"name": "next", "type": ["null", "Node"], "default": None}],
    }
    assert back(schema, {"value": "ÿ", "next": {"value": "a"}}) == {
        "value": "ÿ",
        "next": {"Node": {"value": "a", "next": None}},
    }


def test_too_deep_a_value_is_refused_not_fatal() -> None:
    schema = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"], "default": None}]}
    value: dict[str, Any] = {}
    for _ in range(5000):
        value = {"next": value}
    assert misfit(schema, value) == "#: nested too deeply"


def test_schemas_refer_to_others() -> None:
    color = registered({"type": "enum", "name": "shop.Color", "symbols": ["RED"]})
    apple = registered({"type": "record", "name": "shop.Apple", "fields": [{"name": "color", "type": "shop.Color"}]})
    crate = {"type": "record", "name": "Crate", "fields": [{"name": "best", "type": ["null", "shop.Apple"]}]}
    one = codec_of(registered(crate, **{"shop.Color": color, "shop.Apple": apple}))
    assert one.decode(one.encode({"best": {"shop.Apple": {"color": "RED"}}})) == {
        "best": {"shop.Apple": {"color": "RED"}}
    }


# --- logical types


def typed(base: str, logical: str, **further: object) -> dict[str, object]:
    return {"type": base, "logicalType": logical, **further}


@pytest.mark.parametrize(
    ("schema", "given_value", "read"),
    [
        (typed("int", "date"), "2026-01-31", 20484),
        (typed("int", "date"), 20484, 20484),
        (typed("int", "time-millis"), "10:30:00.5", 37_800_500),
        (typed("long", "time-micros"), "00:00:00.000001", 1),
        (typed("long", "timestamp-millis"), "1970-01-01T00:00:01.5Z", 1500),
        (typed("long", "timestamp-millis"), "1970-01-01T02:00:00+02:00", 0),
        (typed("long", "timestamp-micros"), "1969-12-31T23:59:59.999999Z", -1),
        (typed("long", "timestamp-nanos"), "1970-01-01T00:00:00.000000007Z", 7),
        (typed("long", "local-timestamp-millis"), "1970-01-02 00:00", 86_400_000),
        (typed("long", "timestamp-millis"), 1700000000000, 1700000000000),
        (typed("bytes", "decimal", precision=6, scale=2), "12.5", "12.50"),
        (typed("bytes", "decimal", precision=6, scale=2), 12.5, "12.50"),
        (typed("bytes", "decimal", precision=6, scale=2), -9999, "-9999.00"),
        (typed("bytes", "decimal", precision=6, scale=2), "-0.01", "-0.01"),
        (typed("bytes", "decimal", precision=6, scale=2), "1200e-2", "12.00"),
        (typed("bytes", "decimal", precision=40), "1" * 40, "1" * 40),
        (typed("fixed", "decimal", name="D", size=4, precision=6, scale=2), "-1.5", "-1.50"),
        (typed("string", "uuid"), "6F9619FF-8B86-D011-B42D-00CF4FC964FF", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        (
            typed("fixed", "uuid", name="U", size=16),
            "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
            "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
        ),
        (typed("string", "of-our-own"), "x", "x"),
        (typed("bytes", "decimal", precision=0), "x", "x"),
    ],
)
def test_logical_types_take_text_or_numbers_and_round_trip(schema: object, given_value: object, read: object) -> None:
    assert back(schema, given_value) == read
    assert codec(schema).encode(read) == codec(schema).encode(given_value)


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (typed("int", "date"), "31.1.2026", "no date"),
        (typed("int", "time-millis"), "25:00", "no time"),
        (typed("int", "time-millis"), "10:00:00.0001", "more than 3 digits of a second"),
        (typed("long", "timestamp-millis"), "2026-01-31T10:30:00", "where on earth"),
        (typed("long", "local-timestamp-millis"), "2026-01-31T10:30:00Z", "has none"),
        (typed("long", "timestamp-millis"), "2026-02-31T10:30:00Z", "no timestamp"),
        (typed("bytes", "decimal", precision=4, scale=2), "100", "more than 2 digits before the point"),
        (typed("bytes", "decimal", precision=4, scale=2), "0.001", "more than 2 digits after the point"),
        (typed("bytes", "decimal", precision=4, scale=2), "1e999999999", "digits before the point"),
        (typed("bytes", "decimal", precision=4, scale=2), "1e-999999999", "digits after the point"),
        (typed("bytes", "decimal", precision=4, scale=2), "twelve", "no decimal"),
        (typed("bytes", "decimal", precision=4, scale=2), True, "Expected decimal. Got VALUE_TRUE"),
        (typed("fixed", "decimal", name="D", size=1, precision=6, scale=0), 200, "does not fit 1 bytes"),
        (typed("string", "uuid"), "6f96", "no UUID"),
    ],
)
def test_a_logical_value_that_does_not_fit_is_told_why(schema: object, value: object, reason: str) -> None:
    assert reason in misfit(schema, value)


@given(st.decimals(-999_999, 999_999, places=3))
def test_decimals_keep_all_digits(value: Any) -> None:
    assert back(typed("bytes", "decimal", precision=9, scale=3), str(value)) == f"{value + 0:.3f}".replace(
        "-0.000", "0.000"
    )


# --- what does not fit


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"id": "x"}, "#/id: Expected int. Got VALUE_STRING"),
        ({}, "#/id: Expected int. Got END_OBJECT"),
        ([], "#: Expected record-start. Got START_ARRAY"),
        ({"id": True}, "#/id: Expected int. Got VALUE_TRUE"),
        ({"id": 1.5}, "#/id: Expected int. Got VALUE_NUMBER_FLOAT"),
        ({"id": 2**31}, "#/id: 2147483648 does not fit int, which has 32 bits"),
        ({"id": 1, "tags": ["a", 2]}, "#/tags/1: Expected string. Got VALUE_NUMBER_INT"),
        ({"id": 1, "note": {"string": 5}}, "#/note/string: Expected string. Got VALUE_NUMBER_INT"),
        ({"id": 1, "note": 5}, "#/note: Expected string. Got VALUE_NUMBER_INT"),
        ({"id": 1, "nte": "x"}, "#/nte: shop.Order has no such field (known: id, note, tags)"),
    ],
)
def test_the_place_and_the_reason_are_named(value: object, message: str) -> None:
    assert misfit(ORDER, value) == message


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (["null", "int", "boolean"], "x", "#: Expected start-union (null, int, boolean). Got VALUE_STRING"),
        (["int", "string"], None, "#: Expected start-union (int, string). Got VALUE_NULL"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", '#: "B" is none of A'),
        ({"type": "map", "values": "int"}, {"a/b": "x"}, "#/a~1b: Expected int. Got VALUE_STRING"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "#: 3 bytes found, 2 expected"),
        ("bytes", "€", "#: bytes are text with one character of U+0000 to U+00FF for each, U+20AC found"),
        ("float", 1e39, "#: 1e+39 is too large for float"),
    ],
)
def test_each_type_says_what_it_wants(schema: object, value: object, message: str) -> None:
    assert misfit(schema, value) == message


@pytest.mark.parametrize("data", [b"", b"\x02\x02\x0cta", b"\x02\x04", b"\x02\x02\x00\x00\x00", b"\xff" * 20])
def test_bytes_of_another_schema_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="not of its Avro schema"):
        codec(ORDER).decode(data)


@pytest.mark.parametrize("levels", [50, 5_000, 200_000])
def test_values_that_are_nested_without_end_are_refused(levels: int) -> None:
    """fastavro's reader in C overflows the stack of the process at some thousand levels."""
    schema = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    payload = b"\x02" * levels + b"\0"
    if levels == 50:
        assert codec(schema).encode(codec(schema).decode(payload)) == payload
        return
    with pytest.raises(FormatError, match="nested too deeply"):
        codec(schema).decode(payload)


@given(st.binary(max_size=40))
def test_no_bytes_do_more_than_not_fit(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        codec(ORDER).decode(data)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{nope", "not JSON"),
        ('"unheard"', "type unheard is not known"),
        ("5", "no Avro schema"),
        ('{"type": "record", "name": "R"}', "no Avro schema"),
        ('{"type": "record", "fields": []}', "no Avro schema"),
        ('{"type": "array", "items": "null"}', "takes no bytes"),
        ('{"type": "enum", "name": "E", "symbols": ["-"]}', "no Avro schema"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        codec_of(RegisteredSchema(1, SchemaKind.AVRO, text))
