"""Keys and values with schemas: how a record says which it has, and what becomes of a request that names one."""

import asyncio
import json
import threading
import uuid
from collections.abc import Callable

import pytest

from mesh.schemas.framing import Part, framed, prefix_of
from mesh.schemas.schema import (
    RegisteredSchema,
    RegistryUnavailableError,
    SchemaError,
    SchemaKind,
    UnknownSchemaError,
)
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, FormatError
from services.sidecar.formats.avro import codec_of as avro_codec_of
from services.sidecar.formats.json_schema import codec_of as json_codec_of
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.formats.schema_codec import SchemaCodec
from services.sidecar.formats.schema_formats import CodecFactory, SchemaFormats
from services.sidecar.producing.headers import HeaderWriter, RequestHeaders
from services.sidecar.producing.produce_request import ProduceRequest, RecordRequest, SchemaChoice, Side
from services.sidecar.producing.serializing import Serialized, Serializer
from services.sidecar.schemas.known import KeepingLimits, KnownSchemas
from services.sidecar.schemas.questions import ByGuid, ById, Latest, Question
from services.sidecar.schemas.registry import RegistryAccess, SchemaRegistry

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
GUID = uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
IN_GUID = b"\x01" + GUID.bytes


class ToldSchemas(KnownSchemas):
    """Knows what the test says; counts what had to be found."""

    def __init__(self, answers: dict[Question, RegisteredSchema | Exception]) -> None:
        super().__init__(SchemaRegistry(RegistryAccess("http://registry")), KeepingLimits())
        self.answers = answers
        self.found: list[Question] = []

    def known(self, question: Question) -> RegisteredSchema | None:
        answer = self.answers.get(question)
        return answer if question in self.found and isinstance(answer, RegisteredSchema) else None

    def find(self, question: Question) -> RegisteredSchema:
        self.found.append(question)
        answer = self.answers.get(question, UnknownSchemaError(f"no {question}"))
        if isinstance(answer, Exception):
            raise answer
        return answer


def formats(answers: dict[Question, RegisteredSchema | Exception]) -> tuple[SchemaFormats, ToldSchemas]:
    def unused(schema: RegisteredSchema, message: str | None) -> SchemaCodec:
        raise SchemaError("not in these tests")

    schemas = ToldSchemas(answers)
    factories: dict[SchemaKind, CodecFactory] = {
        SchemaKind.AVRO: avro_codec_of,
        SchemaKind.JSON: json_codec_of,
        SchemaKind.PROTOBUF: unused,
    }
    return SchemaFormats(schemas, factories, most=2), schemas


AVRO = RegisteredSchema(7, SchemaKind.AVRO, ORDER)
JSON = RegisteredSchema(8, SchemaKind.JSON, '{"type": "object", "required": ["id"]}')


def read(content: bytes, *headers: tuple[str, bytes], format_: Format = Format.AVRO, part: Part = "value") -> object:
    schemas, _ = formats(
        {ById(7): AVRO, ByGuid(str(GUID)): AVRO, ById(8): JSON, ById(9): RegistryUnavailableError("away")}
    )
    return RecordReader(schemas).decode(format_, part, content, list(headers))


# --- reading


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (prefix_of(7) + b"\x04", []),
        (IN_GUID + b"\x04", []),
        (b"\x04", [("__value_schema_id", IN_GUID)]),
        (b"\x04", [("other", b"x"), ("__value_schema_id", prefix_of(7))]),
        (prefix_of(7) + b"\x04", [("__key_schema_id", IN_GUID)]),
    ],
)
def test_a_schema_is_named_before_the_value_or_in_a_header(content: bytes, headers: list[tuple[str, bytes]]) -> None:
    assert read(content, *headers) == {"id": 2}


def test_keys_have_their_own_header() -> None:
    assert read(b"\x04", ("__key_schema_id", IN_GUID), part="key") == {"id": 2}


def test_the_message_of_a_header_stands_before_the_payload() -> None:
    prefix, payload = framed("value", b"payload", [("__value_schema_id", IN_GUID + b"\x02\x00")])
    assert (prefix, payload) == (IN_GUID, b"\x02\x00payload")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"id":2}', "not written with a schema registry: it begins with 7b 22"),
        (b"", "begins with nothing"),
        (b"\x00\x00\x00", "not written with a schema registry"),
        (b"\x01" + GUID.bytes[:8], "not written with a schema registry"),
        (prefix_of(5) + b"\x04", "of a schema that nobody knows: no schema id 5"),
        (prefix_of(8) + b"{}", "written with a schema of format jsonschema, not avro"),
        (prefix_of(7) + b"\x04\x04", "not of its Avro schema: 1 of 2 bytes are left over"),
    ],
)
def test_what_does_not_fit_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read(content)


def test_a_registry_that_is_away_says_nothing_about_the_record() -> None:
    with pytest.raises(RegistryUnavailableError):
        read(prefix_of(9) + b"\x04")


@pytest.mark.parametrize(("format_", "content", "shown"), [(Format.STRING, b"x", "x"), (Format.BINARY, b"x", "eA==")])
def test_formats_without_schemas_ask_nobody(format_: Format, content: bytes, shown: object) -> None:
    schemas, told = formats({})
    assert RecordReader(schemas).decode(format_, "value", content, None) == shown
    assert told.found == []


def test_without_a_registry_the_way_out_is_named() -> None:
    with pytest.raises(FormatError, match="KAFKA_MESH_SIDECAR_SCHEMA_REGISTRY_URL"):
        RecordReader().decode(Format.AVRO, "value", prefix_of(7) + b"\x04", None)


def test_a_schema_is_looked_up_once_for_all_its_records() -> None:
    schemas, told = formats({ById(7): AVRO})
    reader = RecordReader(schemas)
    assert [reader.decode(Format.AVRO, "value", prefix_of(7) + b"\x04", None) for _ in range(3)] == [{"id": 2}] * 3
    assert told.found == [ById(7)]


# --- writing


def serialized(
    *values: object, choice: SchemaChoice, format_: Format | None = None, serializer: Serializer | None = None
) -> Serialized:
    request = ProduceRequest(
        "orders",
        Side("key", Format.STRING),
        Side("value", format_, choice),
        [RecordRequest("k", one) for one in values],
    )

    async def run() -> Serialized:
        chosen = serializer or Serializer(Format.STRING, Format.JSON, formats({ById(7): AVRO, ById(8): JSON})[0])
        try:
            return await chosen.serialize(request, HeaderWriter(RequestHeaders(correlation_id="c")))
        finally:
            chosen.close()

    return asyncio.run(run())


def fault(action: Callable[[], object]) -> Fault:
    with pytest.raises(Fault) as raised:
        action()
    return raised.value


def test_values_are_written_behind_the_id_of_their_schema() -> None:
    made = serialized({"id": 2}, None, choice=SchemaChoice(schema_id=7))
    assert [record.value for record in made.records] == [b"\x00\x00\x00\x00\x07\x04", None]
    assert (made.key_schema_id, made.value_schema_id) == (None, 7)
    assert serialized({"id": 2}, choice=SchemaChoice(schema_id=8)).records[0].value == b'\x00\x00\x00\x00\x08{"id":2}'


@pytest.mark.parametrize("answer", [UnknownSchemaError("no such"), RegistryUnavailableError("away")])
def test_nothing_but_nulls_needs_no_schema_unless_one_is_named(answer: Exception) -> None:
    def written(*values: object, choice: SchemaChoice | None = None) -> Serialized:
        schemas = formats({Latest("orders-value"): answer, Latest("fruit"): answer, ById(7): answer})[0]
        serializer = Serializer(Format.STRING, Format.AVRO, schemas)
        return serialized(*values, choice=choice or SchemaChoice(), serializer=serializer)

    made = written(None, None)
    assert ([record.value for record in made.records], made.value_schema_id) == ([None, None], None)
    assert written().records == []
    fault(lambda: written(None, {"id": 1}))
    fault(lambda: written(None, choice=SchemaChoice(schema_id=7)))
    fault(lambda: written(None, choice=SchemaChoice(subject="fruit")))


def test_the_language_of_the_schema_takes_the_place_of_the_format() -> None:
    assert serialized({"id": 2}, choice=SchemaChoice(schema_id=7), format_=Format.JSON).value_schema_id == 7


def test_many_records_are_the_same_as_few() -> None:
    made = serialized(*({"id": number} for number in range(500)), choice=SchemaChoice(schema_id=7))
    assert [record.value[5:] for record in made.records[:3] if record.value] == [b"\x00", b"\x02", b"\x04"]
    assert len(made.records) == 500


def test_a_record_that_does_not_fit_is_named_by_index_and_pointer() -> None:
    raised = fault(lambda: serialized({"id": 1}, {"id": "x"}, choice=SchemaChoice(schema_id=7)))
    assert raised.kind is FaultKind.SERIALIZE_SCHEMA_EXCEPTION
    assert raised.description == (
        "Unexpected exception in serializing avro , index in batch : 1 "
        "format with message value: #/id: Expected int. Got VALUE_STRING"
    )


@pytest.mark.parametrize(
    ("answer", "choice", "kind"),
    [
        (UnknownSchemaError("no such"), SchemaChoice(schema_id=7), FaultKind.FAILED_TO_GET_SCHEMA),
        (RegisteredSchema(7, SchemaKind.AVRO, "{nope"), SchemaChoice(schema_id=7), FaultKind.FAILED_TO_GET_SCHEMA),
        (AVRO, SchemaChoice(schema_id=7, message="Order"), FaultKind.FAILED_TO_GET_SCHEMA),
        (RegistryUnavailableError("away"), SchemaChoice(schema_id=7), FaultKind.SCHEMA_REGISTRY_UNAVAILABLE),
    ],
)
def test_a_schema_that_is_not_to_be_had_is_told_apart_from_a_registry_that_is_away(
    answer: RegisteredSchema | Exception, choice: SchemaChoice, kind: FaultKind
) -> None:
    serializer = Serializer(Format.STRING, Format.JSON, formats({ById(7): answer})[0])
    assert fault(lambda: serialized({"id": 1}, choice=choice, serializer=serializer)).kind is kind


def test_no_look_up_where_the_schema_is_known() -> None:
    schemas, told = formats({ById(7): AVRO})
    for _ in range(3):
        serializer = Serializer(Format.STRING, Format.JSON, schemas)
        serialized({"id": 1}, choice=SchemaChoice(schema_id=7), serializer=serializer)
    assert told.found == [ById(7)]


def test_requests_that_wait_for_one_schema_share_one_look_up_and_one_that_leaves_harms_none() -> None:
    schemas, told = formats({ById(7): AVRO})
    may_answer = threading.Event()
    find = told.find

    def slow(question: Question) -> RegisteredSchema:
        assert may_answer.wait(30)
        return find(question)

    told.find = slow  # type: ignore[method-assign]

    async def run() -> list[int | None]:
        serializer = Serializer(Format.STRING, Format.JSON, schemas)
        side = Side("value", None, SchemaChoice(schema_id=7))
        asking = [asyncio.create_task(serializer.encoder("orders", Side("key"), side)) for _ in range(20)]
        await asyncio.sleep(0)
        asking[0].cancel()
        may_answer.set()
        found = await asyncio.gather(*asking[1:])
        serializer.close()
        return [one.value_schema_id for one in found]

    assert asyncio.run(run()) == [7] * 19
    assert told.found == [ById(7)]
