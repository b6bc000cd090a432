"""Keys and values of records by the schemas that they name, and the bounds of questions to the registry."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from mesh.record_expressions import Expression
from mesh.schemas.protobuf.schema_file import SchemaFile
from mesh.schemas.registry import MOST_BYTES, Registry
from mesh.schemas.schema import RegisteredSchema, SchemaKind
from services.console.records import decoding
from services.console.records.decoding import DOWN_S, FAILED_S, MOST_QUESTIONS, Decoded, Schemas, UndecodedError
from services.console.records.texts import shown
from tests.fixtures.small_registry import SmallRegistry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "share", "type": "double"},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
message First { string word = 1; }
message Outer {
  message Line { int64 count = 1; map<string, uint64> sizes = 2; repeated int64 marks = 3; Line next = 4; }
}
"""
HUGE = Decimal("123456789012345678.90")


def avro(schema: Any, value: object, schema_id: int = 7) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return prefixed(schema_id, data.getvalue())


def prefixed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


@pytest.fixture
def small() -> Iterator[SmallRegistry]:
    with SmallRegistry() as registry:
        yield registry


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def schemas(small: SmallRegistry, now: list[float]) -> Schemas:
    return Schemas(Registry(small.url, seconds=20), lambda: now[0])


class Sample:
    """A record."""

    def __init__(self, value: bytes | None, key: bytes | None = None, headers: Any = None, offset: int = 0) -> None:
        self._value, self._key, self._headers, self._offset = value, key, headers, offset

    def topic(self) -> str:
        return "apples"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Any:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


def seen(schemas: Schemas, value: bytes, key: bytes | None = None, headers: Any = None) -> decoding.Contents:
    return schemas.look(10).places([Sample(value, key, headers)])[0, 0]


def why(schemas: Schemas, value: bytes) -> str:
    with pytest.raises(UndecodedError) as caught:
        schemas.look(10).document("value", value, None)
    return str(caught.value)


def test_avro_has_all_digits_for_people_and_numbers_for_filters(small: SmallRegistry, schemas: Schemas) -> None:
    small.schemas[7] = {"schema": json.dumps(ORDER)}
    value = avro(ORDER, {"n": 2**53 + 1, "price": HUGE, "raw": b"\xff\0", "share": math.nan})
    found = seen(schemas, value, key=value).value
    assert found is not None
    assert (found.kind, found.why) == ("Avro", "")
    assert '"n": 9007199254740993' in found.text
    assert f'"price": "{HUGE}"' in found.text
    assert '"raw": "ÿ\\u0000"' in found.text
    assert "NaN" in found.text, "JSON has no word for it, and null would be another value"
    document = schemas.look(10).document("value", value, None)
    assert document is not None
    assert Expression("value.n == 9007199254740993 && value.price > 1.0")({"value": document.plain})
    made = shown(value, 20, decoded=found.on_one_line)
    assert (made.text, made.label, made.is_cut) == ('{ "n": 9007199254740', "Avro, schema id 7", True)


def line(**fields: Any) -> Message:
    file = SchemaFile(RegisteredSchema(8, SchemaKind.PROTOBUF, PROTO))
    return GetMessageClass(file.pool.FindMessageTypeByName("shop.Outer.Line"))(**fields)


def test_protobuf_by_message_indexes_with_numbers_of_64_bits(small: SmallRegistry, schemas: Schemas) -> None:
    small.schemas[8] = {"schema": PROTO, "schemaType": "PROTOBUF"}
    message = line(count=3, sizes={"a": 2**40}, marks=[1, 2], next={"count": 4})
    value = prefixed(8, b"\x04\x02\x00" + message.SerializeToString())
    document = schemas.look(10).document("value", value, None)
    assert document is not None
    assert document.kind == "Protobuf"
    assert document.exact == {
        "count": 3, "sizes": {"a": 2**40}, "marks": [1, 2], "next": {"count": 4, "sizes": {}, "marks": []},
    }  # fmt: skip
    assert Expression("value.count > 2 && value.next.count == 4")({"value": document.plain})
    assert "name no message of the schema" in why(schemas, prefixed(8, b"\x02\x08"))
    assert "message indexes are cut off" in why(schemas, prefixed(8, b"\x04"))


def test_json_of_a_schema_and_schemas_that_refer_to_others(small: SmallRegistry, schemas: Schemas) -> None:
    small.schemas[9] = {"schema": "{}", "schemaType": "JSON"}
    assert seen(schemas, prefixed(9, b'{"a":1}')).value == Decoded("JSON Schema", '{\n  "a": 1\n}')
    country = {"type": "enum", "name": "Country", "symbols": ["DE"]}
    reference = {"name": "Country", "subject": "a/b", "version": 2}
    small.schemas[10] = {"schema": '["null", "Country"]', "references": [reference]}
    small.versions["a%2Fb", 2] = {"schema": json.dumps(country)}
    assert seen(schemas, prefixed(10, b"\x02\0")).value == Decoded("Avro", '"DE"')


def test_schemas_named_in_headers_and_by_guid(small: SmallRegistry, schemas: Schemas) -> None:
    guid = uuid.uuid4()
    small.guids[str(guid)] = {"schema": '"string"'}
    small.schemas[7] = {"schema": '"long"'}
    headers = [("__key_schema_id", b"\x01" + guid.bytes), ("__value_schema_id", prefixed(7, b""))]
    found = seen(schemas, b"\x0a", key=b"\x02a", headers=headers)
    assert (found.key, found.value) == (Decoded("Avro", '"a"'), Decoded("Avro", "5"))
    assert shown(b"\x0a", 10, decoded=found.value).label == "Avro"
    assert seen(schemas, b"\x01" + guid.bytes + b"\x02a").value == Decoded("Avro", '"a"')


def test_bytes_without_a_schema_ask_nothing(small: SmallRegistry, schemas: Schemas) -> None:
    for value in (b"text", b"", b"\0abc", b"\x01" * 10, None):
        assert schemas.look(10).places([Sample(value)]) == {}
    assert small.asked == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": '{"type":"array","items":"null"}'}, "lists of what takes no bytes"),
        ({"schema": "no JSON"}, "schema 7 of the registry can't be read as Avro"),
        ({"schema": "message {", "schemaType": "PROTOBUF"}, "no valid .proto file"),
        ({"schema": "<a/>", "schemaType": "XML"}, "is of type XML (known: AVRO, JSON, PROTOBUF)"),
        (
            {"schema": '"R"', "references": [{"name": "R"}]},
            "the registry's answer for schema 7 can't be read: KeyError",
        ),
        ({"schema": "x" * (MOST_BYTES + 1)}, f"more than {MOST_BYTES} bytes"),
        ({"schema": '"R"', "references": [{"name": "R", "subject": "r", "version": 1}]}, "in a circle: R"),
        (None, "the schema registry has no schema 7"),
    ],
)
def test_schemas_that_cannot_be_used_are_asked_for_once_in_a_while(
    small: SmallRegistry, schemas: Schemas, now: list[float], answer: dict[str, Any] | None, reason: str
) -> None:
    if answer is not None:
        small.schemas[7] = answer
    small.versions["r", 1] = {"schema": '"R"', "references": [{"name": "R", "subject": "r", "version": 1}]}
    assert reason in why(schemas, prefixed(7, b"abc"))
    asked = len(small.asked)
    assert reason in why(schemas, prefixed(7, b"abc"))
    assert len(small.asked) == asked
    small.schemas[7] = {"schema": '"string"'}
    now[0] += FAILED_S
    assert seen(schemas, prefixed(7, b"\x02a")).value == Decoded("Avro", '"a"')


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (prefixed(7, b""), "not of schema 7: the value is not of its Avro schema 7: EOFError"),
        (prefixed(7, b"\x02ab"), "not of schema 7: 1 of 3 bytes are left over"),
    ],
)
def test_bytes_that_are_not_of_their_schema_stay_bytes(
    small: SmallRegistry, schemas: Schemas, value: bytes, reason: str
) -> None:
    small.schemas[7] = {"schema": '"string"'}
    assert why(schemas, value) == reason
    made = shown(value, 10, decoded=seen(schemas, value).value)
    assert (made.kind, made.why) == ("bytes in hex", reason)


def test_a_registry_that_is_away_is_asked_again_after_a_while(
    small: SmallRegistry, schemas: Schemas, now: list[float]
) -> None:
    small.schemas[7] = {"schema": '"string"'}
    small.failures = [503]
    away = f"the schema registry at {small.url} answers 503 Service Unavailable; needed is schema 7"
    assert why(schemas, prefixed(7, b"\x02a")) == away
    assert why(schemas, prefixed(8, b"\x02a")) == away
    assert len(small.asked) == 1, "the registry has its rest"
    now[0] += DOWN_S
    assert seen(schemas, prefixed(7, b"\x02a")).value == Decoded("Avro", '"a"')
    small.failures = [503]
    why(schemas, prefixed(8, b"\x02a"))
    assert seen(schemas, prefixed(7, b"\x02a")).value == Decoded("Avro", '"a"'), "schemas that are known stay known"


def test_a_silent_registry_has_a_time_out(small: SmallRegistry) -> None:
    small.silent.set()
    began = time.monotonic()
    schemas = Schemas(Registry(small.url, seconds=0.2))
    assert "does not answer" in why(schemas, prefixed(7, b"a"))
    assert time.monotonic() - began < 10


def test_a_login_a_refused_one_and_no_registry(small: SmallRegistry, tmp_path: Path) -> None:
    small.schemas[7] = {"schema": '"string"'}
    small.user_info = "ada:secret"
    login = tmp_path / "login"
    login.write_text("ada:secret")
    value = prefixed(7, b"\x02a")
    assert seen(Schemas(Registry(small.url, f"${{file:{login}}}")), value).value == Decoded("Avro", '"a"')
    assert "answers 401" in why(Schemas(Registry(small.url)), value)
    assert "can't be asked: schema_registry_user_info" in why(Schemas(Registry(small.url, "${env:NOWHERE}")), value)
    small.user_info = ""
    assert "answers 404 Not Found" in why(Schemas(Registry(f"{small.url}/none")), value), "no word about the schema"
    assert why(Schemas(None), value) == "this console knows no schema registry (SCHEMA_REGISTRY_URL)"


def test_a_look_asks_for_so_many_schemas_and_no_longer_than_it_may(
    small: SmallRegistry, schemas: Schemas, now: list[float]
) -> None:
    look = schemas.look(10)
    found = look.places([Sample(prefixed(100 + n, b"a"), offset=n) for n in range(MOST_QUESTIONS + 5)])
    assert len(small.asked) == MOST_QUESTIONS
    last = found[0, MOST_QUESTIONS + 4].value
    assert last is not None
    assert last.why == f"this look has asked for {MOST_QUESTIONS} schemas, and asks for no more"
    late = schemas.look(10)
    now[0] += 11
    with pytest.raises(UndecodedError, match="no time was left to ask the schema registry for schema 9"):
        late.document("value", prefixed(9, b"a"), None)


def test_schemas_are_kept_within_bounds(
    small: SmallRegistry, schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "MOST_SCHEMAS", 2)
    for number in (1, 2, 3):
        small.schemas[number] = {"schema": '"string"'}
    for number in (1, 2, 1, 3, 1, 2):
        assert seen(schemas, prefixed(number, b"\x02a")).value == Decoded("Avro", '"a"')
    assert small.asked == [f"/schemas/ids/{number}" for number in (1, 2, 3, 2)], "the one that was used last stays"
    monkeypatch.setattr(decoding, "MOST_CHARACTERS", 20)
    small.schemas[4] = {"schema": '"string"' + " " * 15}
    for _ in range(2):
        assert seen(schemas, prefixed(4, b"\x02a")).value == Decoded("Avro", '"a"')
    assert small.asked.count("/schemas/ids/4") == 2, "one that is larger than the bound is not kept"


def test_large_values_are_cut_or_left_alone(small: SmallRegistry, schemas: Schemas) -> None:
    small.schemas[7] = {"schema": '"string"'}
    found = seen(schemas, avro("string", "x" * 20_000)).value
    assert found is not None
    assert (len(found.text), found.is_cut) == (decoding.SHOWN, True)
    found = seen(schemas, avro("string", "x" * decoding.LARGEST)).value
    assert found is not None
    assert "are not decoded for pages" in found.why


def test_a_console_loads_nothing_for_schemas_until_one_is_named() -> None:
    program = (
        "import sys, services.console.process\n"
        "wanted = ('fastavro', 'cel_expr_python', 'google.protobuf.json_format', 'confluent_kafka')\n"
        "print([each for each in wanted if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("depth", [300, 900, 5_000, 200_000])
def test_values_that_are_nested_deeply_stay_bytes(small: SmallRegistry, schemas: Schemas, depth: int) -> None:
    nested = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    small.schemas[7] = {"schema": json.dumps(nested)}
    small.schemas[9] = {"schema": "{}", "schemaType": "JSON"}
    small.schemas[10] = {"schema": 'syntax = "proto3"; message L { L next = 1; }', "schemaType": "PROTOBUF"}
    for value in (
        prefixed(7, b"\x02" * depth + b"\0"),
        prefixed(9, b"[" * depth + b"]" * depth),
        prefixed(10, b"\0" + b"\x0a\x7f" * min(depth, 60)),
    ):
        found = seen(schemas, value).value
        assert found is not None
        assert found.text or "nested" in found.why or "RecursionError" in found.why or "not a Protobuf" in found.why
