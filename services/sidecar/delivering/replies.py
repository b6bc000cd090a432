"""Turns the records in a backend's answer into records for Kafka; their JSON has the members of a produce request."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mesh.schemas.schema import Reference, RegistryUnavailableError
from mesh.topics import is_topic_name
from services.sidecar.auditing.events import ids_in
from services.sidecar.delivering.answers import AnswerError
from services.sidecar.delivering.batch import ReplyRecord
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format
from services.sidecar.producing.headers import HeaderWriter, RequestHeaders
from services.sidecar.producing.produce_request import ProduceRequest, RecordRequest, SchemaChoice, Side
from services.sidecar.producing.serializing import Serialized
from services.sidecar.records import RawRecord


class Serializes(Protocol):
    """Serializes the records of a request to bytes for Kafka."""

    async def serialize(self, request: ProduceRequest, headers: HeaderWriter) -> Serialized: ...


def _headers(given: object) -> list[tuple[str, bytes | None]]:
    """A map of texts, or a list of {key, value} with the value in base64."""
    if isinstance(given, dict) and all(isinstance(value, str) for value in given.values()):
        return [(str(name), value.encode()) for name, value in given.items()]
    if isinstance(given, list):
        try:
            return [(one["key"], None if one.get("value") is None else _bytes(one["value"])) for one in given]
        except (KeyError, AttributeError, TypeError, binascii.Error):
            pass
    raise ValueError("headers are a map of texts, or a list of {key, value} with values in base64")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _both(name: str) -> AliasChoices:
    """A member's name, and the same with underscores."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return AliasChoices(name, snake)


class _Member(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Record(_Member):
    key: object = None
    value: object = None
    partition: int | None = Field(default=None, ge=0)
    timestamp: int | None = Field(default=None, ge=0)
    correlation_id: str | None = Field(default=None, validation_alias=_both("correlationId"))
    traceability_id: str | None = Field(default=None, validation_alias=_both("traceabilityId"))
    headers: Annotated[list[tuple[str, bytes | None]], BeforeValidator(_headers)] = []

    def request(self) -> RecordRequest:
        return RecordRequest(
            self.key,
            self.value,
            self.partition,
            self.timestamp,
            self.correlation_id,
            self.traceability_id,
            self.headers,
        )


class _Reference(_Member):
    name: str
    subject: str
    version: int


_Format = Annotated[Format, BeforeValidator(Format.parse)]


class _Topic(_Member):
    topic: str
    records: list[_Record]
    key_format: _Format | None = Field(default=None, validation_alias=_both("keyFormat"))
    value_format: _Format | None = Field(default=None, validation_alias=_both("valueFormat"))
    key_schema: str | None = Field(default=None, validation_alias=_both("keySchema"))
    value_schema: str | None = Field(default=None, validation_alias=_both("valueSchema"))
    key_schema_id: int | None = Field(default=None, validation_alias=_both("keySchemaId"))
    value_schema_id: int | None = Field(default=None, validation_alias=_both("valueSchemaId"))
    key_schema_version: int | None = Field(default=None, validation_alias=_both("keySchemaVersion"))
    value_schema_version: int | None = Field(default=None, validation_alias=_both("valueSchemaVersion"))
    key_schema_subject: str | None = Field(default=None, validation_alias=_both("keySchemaSubject"))
    value_schema_subject: str | None = Field(default=None, validation_alias=_both("valueSchemaSubject"))
    key_schema_message: str | None = Field(default=None, validation_alias=_both("keySchemaMessage"))
    value_schema_message: str | None = Field(default=None, validation_alias=_both("valueSchemaMessage"))
    key_schema_references: list[_Reference] = Field(default=[], validation_alias=_both("keySchemaReferences"))
    value_schema_references: list[_Reference] = Field(default=[], validation_alias=_both("valueSchemaReferences"))

    def request(self) -> ProduceRequest:
        return ProduceRequest(
            self.topic, self._side("key"), self._side("value"), [record.request() for record in self.records]
        )

    def _side(self, name: str) -> Side:
        def said(what: str) -> object:
            return getattr(self, f"{name}_{what}")

        references = self.key_schema_references if name == "key" else self.value_schema_references
        choice = SchemaChoice(
            raw=said("schema"),  # type: ignore[arg-type]  # the fields above have these types
            schema_id=said("schema_id"),  # type: ignore[arg-type]
            version=said("schema_version"),  # type: ignore[arg-type]
            subject=said("schema_subject"),  # type: ignore[arg-type]
            references=tuple(Reference(one.name, one.subject, one.version) for one in references),
            message=said("schema_message"),  # type: ignore[arg-type]
        )
        return Side(name, said("format"), choice)  # type: ignore[arg-type]


class ReplyWriter:
    """Writes replies in the formats and with the schemas that the sidecar's producer has."""

    def __init__(self, serializer: Serializes) -> None:
        self._serializer = serializer

    async def written(self, produce: Sequence[object], where: str, to: RawRecord | None = None) -> list[ReplyRecord]:
        """The records that a result (of the record `to`), or an answer as a whole, asks to write.

        AnswerError if they cannot be written; RegistryUnavailableError if the schema registry does not answer now.
        """
        replies: list[ReplyRecord] = []
        for place, given in enumerate(produce):
            try:
                topic = _Topic.model_validate(given)
            except ValidationError as error:
                first = error.errors()[0]
                pointer = "".join(f"/{part}" for part in first["loc"])
                raise AnswerError(f"{where}: produce/{place}{pointer}: {first['msg']}") from None
            if not is_topic_name(topic.topic):
                raise AnswerError(f"{where}: produce/{place}/topic: {topic.topic!r:.80} is not the name of a topic")
            try:
                done = await self._serializer.serialize(topic.request(), HeaderWriter(_said_by(to)))
            except Fault as fault:
                if fault.kind is FaultKind.SCHEMA_REGISTRY_UNAVAILABLE:
                    raise RegistryUnavailableError(fault.description) from None
                raise AnswerError(f"{where}: produce/{place}: {fault.description}") from None
            replies += [ReplyRecord(topic.topic, record, to) for record in done.records]
        return replies


def _said_by(record: RawRecord | None) -> RequestHeaders:
    """The ids of a reply by default: those of the record that it answers."""
    if record is None:
        return RequestHeaders()
    ids = ids_in(record.headers)
    return RequestHeaders(_as_text(ids.correlation), _as_text(ids.traceability))


def _as_text(told: bytes | str | None) -> str:
    return told.decode(errors="replace") if isinstance(told, bytes) else told or ""
