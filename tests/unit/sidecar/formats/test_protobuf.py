"""Protobuf: schemas from text and from descriptors, messages by name and by index, and what does not fit."""

import base64
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message import Message
from google.type import date_pb2, money_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given
from hypothesis import strategies as st

from mesh.schemas.protobuf import compiler, message_path
from mesh.schemas.protobuf.schema_file import SchemaFiles
from mesh.schemas.schema import RegisteredSchema, SchemaError, SchemaKind
from services.sidecar.formats import FormatError
from services.sidecar.formats.protobuf import codec_of
from services.sidecar.formats.schema_codec import SchemaCodec

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/money.proto";
import "people/person.proto";

message Order {
  int32 id = 1;
  google.protobuf.Timestamp placed_at = 2;
  google.type.Money price = 3;
  people.Person buyer = 4;
  map<string, int64> stock = 5;
  map<int32, Line> lines = 6;
  oneof payment { string card = 7; bytes voucher = 8; }
  Colour colour = 9;
  double weight = 10;
  google.protobuf.Any extra = 11;
  google.protobuf.BytesValue seal = 12;
  repeated int64 numbers = 13;
  Order part_of = 14;
  message Line { int64 count = 1; repeated string notes = 2; }
}
enum Colour { RED = 0; GREEN = 1; }
message Refund { message Reason { string text = 1; } int32 order_id = 1; }
"""
PERSON = """
syntax = "proto2";
package people;
import "people/town.proto";
message Person { required string name = 1; optional Town town = 2; repeated Person friends = 3; }
"""
TOWN = 'edition = "2023"; package people; message Town { string name = 1; }'
JSON_OF_JAVA = """
syntax = "proto3";
message Order {
  repeated StockEntry stock = 1;
  message StockEntry { option map_entry = true; string key = 1; int64 value = 2; }
  message Line { int32 count = 1; }
}
"""
"""As registries show the schema of a class that Java's compiler made."""


def schema(text: str, references: dict[str, str] | None = None) -> RegisteredSchema:
    closure = {
        name: RegisteredSchema(number, SchemaKind.PROTOBUF, given)
        for number, (name, given) in enumerate((references or {}).items(), start=2)
    }
    return RegisteredSchema(1, SchemaKind.PROTOBUF, text, closure)


def file(*messages: str, imports: Sequence[str] = ()) -> FileDescriptorProto:
    """A descriptor of messages without fields."""
    return FileDescriptorProto(dependency=imports, message_type=[DescriptorProto(name=name) for name in messages])


def in_base64(descriptor: FileDescriptorProto) -> str:
    return base64.b64encode(descriptor.SerializeToString()).decode()


@pytest.fixture(scope="module")
def shop() -> RegisteredSchema:
    return schema(SHOP, {"people/town.proto": TOWN, "people/person.proto": PERSON})


@pytest.fixture(scope="module")
def order(shop: RegisteredSchema) -> SchemaCodec:
    return codec_of(shop)


def test_a_value_comes_back_as_protobufs_own_json(order: SchemaCodec) -> None:
    value: dict[str, Any] = {
        "id": 7,
        "placedAt": "2026-01-02T03:04:05.000000006Z",
        "price": {"currencyCode": "EUR", "units": "5", "nanos": 0},
        "buyer": {"name": "Ann", "town": {"name": "Ulm"}, "friends": [{"name": "Bob", "friends": []}]},
        "stock": {"a": "9007199254740993"},
        "lines": {"-4": {"count": "1", "notes": ["x"]}},
        "voucher": "AP8=",
        "colour": "GREEN",
        "weight": "NaN",
        "extra": {"@type": "types/shop.Refund", "orderId": 3},
        "seal": "AA==",
        "numbers": ["1", "-9223372036854775808"],
    }
    assert order.decode(order.encode(value)) == value


def test_fields_may_be_named_either_way_and_numbers_written_either_way(order: SchemaCodec) -> None:
    given = {"placed_at": "2026-01-01T00:00:00Z", "numbers": [1, "2", 3.0], "colour": 1, "id": "5", "weight": "1.5"}
    same = {"placedAt": "2026-01-01T00:00:00Z", "numbers": ["1", 2, 3], "colour": "GREEN", "id": 5, "weight": 1.5}
    assert order.encode(given) == order.encode(same)


def test_fields_at_their_default_are_shown_when_they_cannot_be_absent(order: SchemaCodec) -> None:
    shown = {"id": 0, "stock": {}, "lines": {}, "colour": "RED", "weight": 0.0, "numbers": []}
    assert order.decode(order.encode({})) == shown


def test_equal_values_are_equal_bytes(order: SchemaCodec) -> None:
    """Keys may be Protobuf too, and their bytes choose the partition."""
    names = [f"k{number}" for number in range(50)]
    assert order.encode({"stock": dict.fromkeys(names, 1)}) == order.encode({"stock": dict.fromkeys(names[::-1], 1)})


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (None, b"\x00"),
        ("shop.Order", b"\x00"),
        ("Order.Line", b"\x04\x00\x00"),
        ("shop.Refund", b"\x02\x02"),
        (".shop.Refund.Reason", b"\x04\x02\x00"),
        ("Refund.Reason", b"\x04\x02\x00"),
    ],
)
def test_any_message_of_the_file_can_be_written_and_is_read_by_its_indexes(
    shop: RegisteredSchema, order: SchemaCodec, message: str | None, wire: bytes
) -> None:
    codec = codec_of(shop, message)
    assert codec.encode({}) == wire
    assert codec.decode(wire) == order.decode(wire)


def test_maps_do_not_count_among_message_indexes(order: SchemaCodec) -> None:
    """As in Java: `map<,>` is no message of the text, though the compiler makes one of it, before `Line` here."""
    assert order.decode(b"\x04\x00\x00\x08\x05") == {"count": "5", "notes": []}


def test_map_entries_that_the_text_spells_out_are_maps_and_count() -> None:
    java = schema(JSON_OF_JAVA)
    assert codec_of(java).decode(codec_of(java).encode({"stock": {"a": 1}})) == {"stock": {"a": "1"}}
    assert codec_of(java, "Order.Line").encode({}) == b"\x04\x00\x02"


@given(st.lists(st.integers(0, message_path.MAX_INDEX), min_size=1, max_size=8), st.binary(max_size=8))
def test_paths_of_any_depth_are_read_as_they_were_written(path: list[int], message: bytes) -> None:
    wire = message_path.written(tuple(path))
    assert message_path.read(wire + message) == (tuple(path), len(wire))


def test_a_long_form_of_the_first_path_is_read_too() -> None:
    assert message_path.read(b"\x02\x00rest") == ((0,), 2)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (5, "#: integer found, object expected (shop.Order)"),
        ([], "#: array found, object expected (shop.Order)"),
        ("id", "#: string found, object expected (shop.Order)"),
        ({"id": "x"}, "#/id: string found, int32 expected"),
        ({"id": 2**40}, "#/id: integer found, int32 expected: Value out of range: 1099511627776"),
        ({"numbers": [1, 2, True]}, "#/numbers/2: boolean found, int64 expected"),
        ({"numbers": 1}, "#/numbers: integer found, array expected"),
        ({"stock": []}, "#/stock: array found, object expected"),
        ({"stock": {"a/b": "x"}}, "#/stock/a~1b: string found, int64 expected"),
        ({"lines": {"one": {}}}, "#/lines/one: a key of type int32 expected"),
        ({"lines": {"1": {"notes": ["x", 2]}}}, "#/lines/1/notes/1: integer found, string expected"),
        ({"lines": {"1": ""}}, "#/lines/1: string found, object expected (shop.Order.Line)"),
        ({"partOf": {"partOf": {"nope": 1}}}, "#/partOf/partOf/nope: unknown field; shop.Order has id, placedAt"),
        ({"colour": "BLUE"}, "#/colour: string found, shop.Colour (RED, GREEN) expected"),
        ({"colour": 0.5}, "#/colour: number found, shop.Colour (RED, GREEN) expected"),
        ({"weight": True}, "#/weight: boolean found, double expected"),
        ({"voucher": "***"}, "#/voucher: string found, bytes as base64 text expected"),
        ({"seal": "AAAAA"}, "#/seal: string found, bytes as base64 text expected"),
        ({"placedAt": "noon"}, "#/placedAt: string found, google.protobuf.Timestamp expected: Failed to parse"),
        ({"card": "1", "voucher": ""}, '#: Message type "shop.Order" should not have multiple "payment" oneof fields'),
        ({"extra": {"@type": "x/Nope"}}, "#/extra: object found, google.protobuf.Any expected"),
        ({"buyer": {"name": "Ann", "friends": [{"name": "Bob"}, {}]}}, "#/buyer/friends/1: required field 'name' is"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(order: SchemaCodec, value: object, complaint: str) -> None:
    with pytest.raises(FormatError) as refusal:
        order.encode(value)
    assert str(refusal.value).startswith(complaint)


def test_nesting_without_end_is_refused(order: SchemaCodec) -> None:
    value: dict[str, Any] = {}
    for _ in range(5000):
        value = {"partOf": value}
    with pytest.raises(FormatError, match="too deep"):
        order.encode(value)


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"", "its message indexes are cut off"),
        (b"\x02", "its message indexes are cut off"),
        (b"\x80\x80\x80\x80\x80\x80", "its message indexes are cut off"),
        (b"\x01", "a message index below 0"),
        (b"\xfe\xff\xff\xff\x0f", "a path of 2147483647 message indexes"),
        (b"\x02\x08", r"its message indexes \[4\] name no message"),
        (b"\x00\xff", "not a Protobuf message shop.Order"),
        (b"\x00\x5a\x08\x0a\x06x/Nope", "a Protobuf message shop.Order that JSON cannot show"),
    ],
)
def test_bytes_of_another_schema_are_refused(order: SchemaCodec, payload: bytes, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        order.decode(payload)


@pytest.mark.parametrize(
    ("given_schema", "message", "complaint"),
    [
        (schema('syntax = "proto3"; message A { int32 x = 1 }'), None, 'schema.proto:1:44: Expected ";"'),
        (schema('syntax = "proto3"; import "b.proto"; message A {}'), None, "b.proto: File not found"),
        (schema('syntax = "proto3"; import "../b.proto"; message A {}'), None, "not allowed"),
        (schema('syntax = "proto3"; import "/etc/hostname"; message A {}'), None, "/etc/hostname: File not found"),
        (schema('syntax = "proto3";'), None, "the schema has no message"),
        (schema(""), None, "the schema has no message"),
        (schema("message A {}", {"../b.proto": ""}), None, "'../b.proto', which is no path"),
        (schema("message A {}", {"/b.proto": ""}), None, "which is no path"),
        (schema("message A {}", {"b\0.proto": ""}), None, "which is no path"),
        (schema("message A {}", {"@b.proto": ""}), None, "'@b.proto', which is no path"),
        (schema("message A {}", {"b": "", "b/c.proto": ""}), None, "cannot be run"),
        (schema("message A {}", {f"{n}.proto": "" for n in range(500)}), None, "at most 500 are compiled"),
        (schema(f"message A {{}} // {'x' * compiler.MAX_TEXT_BYTES}"), None, "at most 4194304"),
        (schema("\ud800"), None, "schema.proto is not text"),
        (schema("message A {} message B { message C {} }"), "C", "has no message 'C'; it has A, B, B.C"),
        (
            RegisteredSchema(
                1, SchemaKind.PROTOBUF, "message A {}", {"b.proto": RegisteredSchema(2, SchemaKind.AVRO, "{}")}
            ),
            None,
            "'b.proto' is a schema of kind AVRO",
        ),
        (
            schema(in_base64(file("A", imports=["b.proto"]))),
            None,
            "imports 'b.proto', which is not among the schema's references",
        ),
        (
            schema(in_base64(file("A", imports=["schema.proto"]))),
            None,
            "imports itself: schema.proto -> schema.proto",
        ),
        (schema(in_base64(file("A", "A"))), None, "not a valid"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_the_reason(
    given_schema: RegisteredSchema, message: str | None, complaint: str
) -> None:
    with pytest.raises(SchemaError) as refusal:
        codec_of(given_schema, message)
    assert complaint in str(refusal.value)


def test_descriptors_in_place_of_text_need_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_compiled_in", pytest.fail)
    money = FileDescriptorProto.FromString(money_pb2.DESCRIPTOR.serialized_pb)
    own = FileDescriptorProto(name="unused", package="own", dependency=["my/money.proto"])
    own.message_type.add(name="Price").field.add(
        name="money", number=1, type=11, label=1, type_name="google.type.Money"
    )
    codec = codec_of(schema(in_base64(own), {"my/money.proto": in_base64(money)}))
    value = {"money": {"currencyCode": "EUR", "units": "3", "nanos": 0}}
    assert codec.decode(codec.encode(value)) == value


def test_text_and_descriptors_may_refer_to_each_other() -> None:
    date = FileDescriptorProto.FromString(date_pb2.DESCRIPTOR.serialized_pb)
    text = 'syntax = "proto3"; import "my/date.proto"; message Day { google.type.Date date = 1; }'
    codec = codec_of(schema(text, {"my/date.proto": in_base64(date)}))
    assert codec.decode(codec.encode({"date": {"year": 2026}})) == {"date": {"year": 2026, "month": 0, "day": 0}}


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (health_pb2.HealthCheckResponse(status="SERVING"), {"status": "SERVING"}),
        (
            reflection_pb2.ServerReflectionRequest(host="h", file_containing_extension={"extension_number": 3}),
            {"host": "h", "fileContainingExtension": {"containingType": "", "extensionNumber": 3}},
        ),
        (
            reflection_pb2.ListServiceResponse(service=[{"name": "a"}, {}]),
            {"service": [{"name": "a"}, {"name": ""}]},
        ),
    ],
)
def test_confluents_serdes_write_what_is_read_and_read_what_is_written(message: Message, value: dict[str, Any]) -> None:
    """With their generated classes, and the descriptor that their serializer registers in place of text."""
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    context = SerializationContext(message.DESCRIPTOR.full_name, MessageField.VALUE)
    theirs = ProtobufSerializer(type(message), registry)(message, context)
    descriptor = FileDescriptorProto.FromString(message.DESCRIPTOR.file.serialized_pb)
    codec = codec_of(schema(in_base64(descriptor)), message.DESCRIPTOR.full_name)
    assert codec.decode(theirs[5:]) == value
    deserializer = ProtobufDeserializer(type(message), {"use.deprecated.format": False}, registry)
    assert deserializer(theirs[:5] + codec.encode(value), context) == message


def test_two_schemas_may_call_different_messages_by_one_name() -> None:
    apples = codec_of(schema('syntax = "proto3"; message Fruit { int32 apples = 1; }'))
    pears = codec_of(schema('syntax = "proto3"; message Fruit { string pears = 1; }'))
    assert apples.decode(apples.encode({"apples": 1})) == {"apples": 1}
    assert pears.decode(pears.encode({"pears": "one"})) == {"pears": "one"}


def test_who_asks_for_a_schema_that_is_being_compiled_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    everyone_asked = threading.Barrier(4)
    run: Callable[..., Any] = compiler._compiled_in

    def counted(folder: Path, *arguments: Any) -> Any:
        runs.append(1)
        return run(folder, *arguments)

    monkeypatch.setattr(compiler, "_compiled_in", counted)
    files = SchemaFiles()

    def ask(number: int) -> object:
        everyone_asked.wait(30)
        return files.get(schema("message Asked { optional int32 often = 1; }"))

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ask, range(4)))
    assert len(runs) == 1
    assert all(one is found[0] for one in found)


def test_only_the_last_schemas_are_kept() -> None:
    files = SchemaFiles(most=1)
    texts = [in_base64(file(name)) for name in ("A", "B")]
    first = files.get(schema(texts[0]))
    assert files.get(schema(texts[0])) is first
    files.get(schema(texts[1]))
    assert files.get(schema(texts[0])) is not first


def test_a_compiler_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MAX_SECONDS", 0.001)
    with pytest.raises(SchemaError, match="did not end within"):
        codec_of(schema("message TooLate {}"))


def test_a_busy_compiler_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MAX_SECONDS", 0.001)
    monkeypatch.setattr(compiler, "_running", threading.BoundedSemaphore(1))
    with compiler._running, pytest.raises(SchemaError, match="busy"):
        codec_of(schema("message Queued {}"))
