"""A request to produce, as the caller wrote it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from mesh.schemas.schema import Reference
from services.sidecar.formats import Format


class SubjectStrategy(Enum):
    """The source of a subject's name, in the words of Confluent's serializers."""

    TOPIC_NAME = "TopicNameStrategy"
    RECORD_NAME = "RecordNameStrategy"
    TOPIC_RECORD_NAME = "TopicRecordNameStrategy"


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """The schema that one side (keys or values) of a request asks for."""

    raw: str | None = None
    schema_id: int | None = None
    version: int | None = None
    subject: str | None = None
    references: tuple[Reference, ...] = ()
    """The schemas that a raw schema refers to."""
    message: str | None = None
    """Full name of a Protobuf message; None for the file's first message."""
    strategy: SubjectStrategy | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """The format and schema of one side of a request: its keys, or its values."""

    name: str
    format: Format | None = None
    schema: SchemaChoice = field(default_factory=SchemaChoice)


class RecordRequest(NamedTuple):
    """One record as the caller wrote it. It is a tuple, like `Outgoing`, because there are many records."""

    key: object = None
    value: object = None
    partition: int | None = None
    timestamp: int | None = None
    correlation_id: str | None = None
    traceability_id: str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    """The headers in their order; a name may come several times."""


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """One request: records for one topic."""

    topic: str
    key: Side
    value: Side
    records: list[RecordRequest]
