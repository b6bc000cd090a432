"""The words of producing: what a caller asks for, what Kafka gets, and how it went."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, FormatError
from services.sidecar.formats.format import available_labels

if TYPE_CHECKING:
    from services.sidecar.producing.headers import HeaderWriter

CORRELATION_HEADER = "X-Correlation-Id"
TRACEABILITY_HEADER = "X-Traceability-Id"
Headers = list[tuple[str, str | bytes | None]]
"""Kafka headers in their order, as the client takes them. Once made it is shared, and never written to."""


def new_correlation_id() -> str:
    """16 bytes in 22 characters, as the original writes a UUID."""
    return base64.urlsafe_b64encode(os.urandom(16))[:22].decode("ascii")


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """Which schema one side (keys or values) of a request asks for."""

    raw: str | None = None
    schema_id: int | None = None
    version: int | None = None
    subject: str | None = None

    @property
    def is_given(self) -> bool:
        return not (self.raw is None and self.schema_id is None and self.version is None and self.subject is None)


@dataclass(frozen=True, slots=True)
class Side:
    """How keys, or values, of a request are written."""

    name: str
    format: Format | None = None
    schema: SchemaChoice = field(default_factory=SchemaChoice)


class RecordRequest(NamedTuple):
    """One record as the caller wrote it. A tuple, as `Outgoing` is: there are many."""

    key: object = None
    value: object = None
    partition: int | None = None
    timestamp: int | None = None
    correlation_id: str | None = None
    traceability_id: str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    """In their order; one name may come several times."""


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """One request: records for one topic."""

    topic: str
    key: Side
    value: Side
    records: list[RecordRequest]


class Outgoing(NamedTuple):
    """One record as Kafka gets it."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp: int
    """Milliseconds since the epoch; 0 means now."""
    headers: Headers


class DeliveryError(Enum):
    """Why a record was not written, by the contract's numbers."""

    AUTHENTICATION = 40101
    AUTHORIZATION = 40301
    UNKNOWN_TOPIC = 40401
    UNKNOWN_PARTITION = 40402
    KAFKA = 50002
    RETRIABLE = 50003


@dataclass(frozen=True, slots=True)
class Delivered:
    """The record is in Kafka, here."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The record is not in Kafka, or nobody can tell."""

    error: DeliveryError
    text: str


Delivery = Delivered | Failed


@dataclass(frozen=True, slots=True)
class Serializer:
    """Turns a request into records; the whole batch before the first is sent, so one bad record sends nothing."""

    key_format: Format
    value_format: Format

    def serialize(self, request: ProduceRequest, headers: "HeaderWriter") -> list[Outgoing]:
        """Fault when formats and schemas do not go together, or a record does not fit its format."""
        key_format = _format_of(request.key, self.key_format)
        value_format = _format_of(request.value, self.value_format)
        return [
            Outgoing(
                key=_encoded(key_format, record.key, "key", index),
                value=_encoded(value_format, record.value, "value", index),
                partition=record.partition,
                timestamp=max(record.timestamp or 0, 0),
                headers=headers.of(record),
            )
            for index, record in enumerate(request.records)
        ]


def _encoded(format_: Format, value: object, member: str, index: int) -> bytes | None:
    if value is None:
        return None
    try:
        return format_.codec.encode(value)
    except FormatError as error:
        raise Fault(
            FaultKind.SERIALIZE_SCHEMA_EXCEPTION,
            f"Unexpected exception in serializing {format_.label} , index in batch : {index} "
            f"format with message {member}: {error}",
        ) from None


def _format_of(side: Side, default: Format) -> Format:
    schema = side.schema
    if schema.is_given:
        _check_combination(side)
        raise _needs_registry(f"{side.name}: a schema was given, which")
    format_ = side.format or default
    if not format_.codec.available:
        raise _needs_registry(f"{side.name}Format {format_.label}")
    return format_


def _check_combination(side: Side) -> None:
    """Id, version and raw schema exclude each other; a raw schema does not say its own format."""
    name, schema = side.name, side.schema
    if schema.schema_id is not None and schema.version is not None:
        raise Fault(
            FaultKind.VERSION_WITH_SCHEMA_ID, f"{name}SchemaId and {name}SchemaVersion exclude each other; send one"
        )
    if schema.schema_id is not None and schema.raw is not None:
        raise Fault(FaultKind.SCHEMA_WITH_SCHEMA_ID, f"{name}SchemaId and {name}Schema exclude each other; send one")
    if schema.version is not None and schema.raw is not None:
        raise Fault(
            FaultKind.SCHEMA_WITH_SCHEMA_VERSION, f"{name}SchemaVersion and {name}Schema exclude each other; send one"
        )
    if schema.raw is not None and side.format is None:
        raise Fault(
            FaultKind.RAW_SCHEMA_WITHOUT_FORMAT, f"{name}Schema needs {name}Format: AVRO, JSONSCHEMA or PROTOBUF"
        )


def _needs_registry(what: str) -> Fault:
    return Fault(
        FaultKind.FAILED_TO_GET_SCHEMA,
        f"{what} needs a schema registry, which this sidecar does not use yet; "
        f"formats without one: {available_labels()}",
    )
