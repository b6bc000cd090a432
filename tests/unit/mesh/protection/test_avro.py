"""Fields of Avro that are protected and revealed: by their schema, byte for byte, and masks that fit it."""

from __future__ import annotations

import io
import json
import secrets
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.protection.fields import Content, MissingError, SchemaAwayError
from mesh.protection.keys import DataKey, NoKey, Wrapped
from mesh.protection.records import Protecting, RefusedError, Revealing, WithheldError
from mesh.protection.rule import Rule, What
from mesh.schemas.framing import prefix_of
from mesh.schemas.schema import RegisteredSchema, SchemaKind

CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string"]},
        {"name": "photo", "type": "bytes"},
        {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}},
        {"name": "score", "type": "double"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "notes", "type": {"type": "map", "values": "string"}},
        {"name": "friends", "type": {"type": "array", "items": ["null", "Customer"]}},
        {
            "name": "other",
            "type": [{"type": "record", "name": "Phone", "fields": [{"name": "n", "type": "string"}]}, "int"],
        },
    ],
}
PARSED = fastavro.parse_schema(CUSTOMER)
SCHEMA = RegisteredSchema(7, SchemaKind.AVRO, json.dumps(CUSTOMER))
PREFIX = prefix_of(7)
SCHEMAS = {PREFIX: SCHEMA}
KEY = DataKey(Wrapped("pii", b"wrapped"), secrets.token_bytes(32))
SECRETS = {KEY.name: KEY.secret}
READER, OTHER = ("User:crm",), ("User:clerk",)
TEXTS = Rule(
    "texts",
    "c",
    what=What.AVRO,
    fields=("email", "photo", "notes.phone", "friends[*].email", "other.n"),
    key_id="pii",
    readers=READER,
)
MASKS = Rule(
    "masks", "c", what=What.AVRO, fields=("born", "level", "score", "hash", "notes", "friends", "email"), readers=READER
)


def customers(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    friends: st.SearchStrategy[list[Any]] = st.just([])
    if depth:
        friends = st.lists(st.none() | customers(depth - 1), max_size=2)
    return st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "email": st.none() | st.text(max_size=5),
            "photo": st.binary(max_size=200),
            "born": st.none() | st.dates().filter(lambda day: day.year > 1),
            "level": st.sampled_from(["LOW", "HIGH"]),
            "score": st.floats(allow_nan=False),
            "hash": st.binary(min_size=4, max_size=4),
            "notes": st.dictionaries(st.sampled_from(["phone", "x"]), st.text(max_size=4)),
            "friends": friends,
            "other": st.integers(0, 5) | st.fixed_dictionaries({"n": st.text(max_size=3)}),
        }
    )


def written(customer: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, customer)
    return PREFIX + out.getvalue()


def read(value: bytes | None) -> Any:
    assert value is not None
    assert value.startswith(PREFIX)
    data = io.BytesIO(value[len(PREFIX) :])
    found = fastavro.schemaless_reader(data, PARSED, None)
    assert not data.read()
    return found


def protected(value: bytes, rule: Rule = TEXTS) -> Content:
    return Protecting("c", [rule], {"pii": KEY}, SCHEMAS).protected(Content(value, []))


def revealed(content: Content, who: tuple[str, ...], rule: Rule = TEXTS, schemas: Any = SCHEMAS) -> Content:
    return Revealing("c", [rule], who, SECRETS, schemas).revealed(content)


@given(customer=customers(2))
def test_a_reader_gets_every_byte_and_the_cluster_has_a_value_of_the_schema(customer: dict[str, Any]) -> None:
    value = written(customer)
    sealed = protected(value)
    stored = read(sealed.value)
    assert stored["id"] == customer["id"]
    assert stored["photo"].startswith(b"mesh:1:pii:")
    assert stored["email"] is None if customer["email"] is None else stored["email"].startswith("mesh:1:pii:")
    assert revealed(sealed, READER) == Content(value, [])
    masked = read(revealed(sealed, OTHER).value)
    assert masked["email"] == (None if customer["email"] is None else "***")
    assert masked["photo"] == b"***"
    assert masked["notes"].get("phone", "***") == "***"


@given(customer=customers(1))
def test_masks_of_all_types_fit_the_schema(customer: dict[str, Any]) -> None:
    masked = read(revealed(Content(written(customer), []), OTHER, MASKS).value)
    assert (masked["born"], masked["level"], masked["score"], masked["hash"]) == (None, "LOW", 0.0, bytes(4))
    assert (masked["notes"], masked["friends"]) == ({}, [])
    assert masked["other"] == customer["other"]
    assert revealed(Content(written(customer), []), READER, MASKS).value == written(customer)


@given(st.binary(max_size=60), st.sampled_from([READER, OTHER]))
def test_bytes_that_are_no_avro_are_refused_and_masked(data: bytes, who: tuple[str, ...]) -> None:
    try:
        document = read(PREFIX + data)
    except Exception:  # noqa: BLE001  # fastavro raises whatever it likes
        document = None
    if document is not None:
        return
    value = PREFIX + data
    try:
        protected(value)
    except RefusedError:
        assert revealed(Content(value, []), OTHER).value == b"***"
        assert revealed(Content(value, []), READER).value == value


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("id", "is of type long, and only string and bytes can be encrypted in Avro"),
        ("born", "is of type int"),
        ("friends", "is of type array"),
    ],
)
def test_a_field_whose_type_takes_no_ciphertext_is_refused(field: str, reason: str) -> None:
    rule = Rule("r", "c", what=What.AVRO, fields=(field,), key_id="pii")
    customer = {
        "id": 1, "email": "a", "photo": b"", "born": 1, "level": "LOW", "score": 1.0, "hash": b"1234", "notes": {},
        "friends": [], "other": 1,
    }  # fmt: skip
    with pytest.raises(RefusedError, match=f"field {field} {reason}"):
        protected(written(customer), rule)


def test_schemas_that_are_missing_away_unknown_or_of_another_kind() -> None:
    value = Content(PREFIX + b"x", [])
    with pytest.raises(MissingError) as missing:
        Protecting("c", [TEXTS], {"pii": KEY}).protected(value)
    assert missing.value.names == {PREFIX}
    assert Revealing("c", [TEXTS], OTHER, {}).needed(value) == {PREFIX}, "a mask needs the schema, too"
    away = {PREFIX: NoKey("no answer", is_gone=False)}
    with pytest.raises(SchemaAwayError):
        Protecting("c", [TEXTS], {"pii": KEY}, away).protected(value)
    with pytest.raises(WithheldError, match="no answer"):
        revealed(value, OTHER, schemas=away)
    for unusable, reason in (
        (NoKey("no schema 7", is_gone=True), "no schema 7"),
        (RegisteredSchema(7, SchemaKind.JSON, "{}"), "and not Avro"),
        (RegisteredSchema(7, SchemaKind.AVRO, "{"), "can't be read as Avro"),
    ):
        with pytest.raises(RefusedError, match=reason):
            Protecting("c", [TEXTS], {"pii": KEY}, {PREFIX: unusable}).protected(value)
    with pytest.raises(RefusedError, match="no prefix of a schema registry"):
        protected(b"plain")


def test_a_field_in_a_block_that_says_its_size_is_refused_and_the_value_masked() -> None:
    text = json.dumps({"type": "array", "items": "string"})
    schemas = {PREFIX: RegisteredSchema(7, SchemaKind.AVRO, text)}
    rule = Rule("r", "c", what=What.AVRO, fields=("[*]",), key_id="pii", readers=READER)
    plain, sized = PREFIX + b"\x02\x02a\x00", PREFIX + b"\x01\x04\x02a\x00"
    Protecting("c", [rule], {"pii": KEY}, schemas).protected(Content(plain, []))
    with pytest.raises(RefusedError, match="a block that says its size"):
        Protecting("c", [rule], {"pii": KEY}, schemas).protected(Content(sized, []))
    assert revealed(Content(sized, []), OTHER, rule, schemas).value == b"***"
