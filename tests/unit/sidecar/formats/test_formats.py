"""Formats: numbers and names, and what they do to keys and values."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sidecar.formats import Format, FormatError, json_text

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("given_format", "expected"),
    [
        (0, Format.BINARY),
        (1, Format.JSON),
        (2, Format.AVRO),
        (3, Format.JSONSCHEMA),
        (4, Format.PROTOBUF),
        (5, Format.STRING),
    ],
)
def test_numbers_follow_the_enum_of_the_contract(given_format: int, expected: Format) -> None:
    assert Format.parse(given_format) is expected


@pytest.mark.parametrize("name", ["string", "STRING", "String"])
def test_names_in_any_case(name: str) -> None:
    assert Format.parse(name) is Format.STRING


@pytest.mark.parametrize("wrong", [6, -1, "xml", "", True, 1.0, None, []])
def test_what_is_no_format_is_refused_with_all_names(wrong: object) -> None:
    with pytest.raises(ValueError, match='"BINARY", "JSON", "AVRO", "JSONSCHEMA", "PROTOBUF", "STRING"'):
        Format.parse(wrong)


@given(st.binary())
def test_binary_gives_back_the_bytes(data: bytes) -> None:
    codec = Format.BINARY.codec
    assert codec.encode(codec.decode(data)) == data


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_string_gives_back_the_text(text: str) -> None:
    codec = Format.STRING.codec
    assert codec.decode(codec.encode(text)) == text


@given(JSON_VALUES)
def test_json_gives_back_the_value_with_all_digits(value: object) -> None:
    try:
        body = json_text.dumps(value)
    except json_text.JsonError:
        return  # text that UTF-8 cannot say
    encoded = Format.JSON.codec.encode(json_text.loads(body))
    assert json_text.loads(orjson.dumps(Format.JSON.codec.decode(encoded))) == value


def test_json_keeps_integers_of_any_length() -> None:
    assert (
        Format.JSON.codec.encode(json_text.loads(b"[123456789012345678901234567890]"))
        == b"[123456789012345678901234567890]"
    )


@pytest.mark.parametrize(
    ("format_", "value", "message"),
    [
        (Format.BINARY, 5, "integer found, base64 text expected"),
        (Format.BINARY, "***", "not base64"),
        (Format.BINARY, "YQ", "not base64"),
        (Format.STRING, 5, "integer found, string expected"),
        (Format.STRING, {"a": 1}, "object found, string expected"),
        (Format.AVRO, {"a": 1}, "schema registry"),
    ],
)
def test_a_value_of_another_shape_is_refused(format_: Format, value: object, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        format_.codec.encode(value)


@pytest.mark.parametrize(
    ("format_", "data", "message"),
    [
        (Format.STRING, b"\xff", "not UTF-8"),
        (Format.JSON, b"{oops", "not JSON"),
        (Format.JSON, b"NaN", "not JSON"),
        (Format.JSON, b"", "not JSON"),
        (Format.PROTOBUF, b"\x00", "schema registry"),
    ],
)
def test_bytes_of_another_format_are_refused(format_: Format, data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        format_.codec.decode(data)
