"""The types of producing: requests of callers, records for Kafka, and outcomes."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from services.sidecar.formats import Format
from services.sidecar.schemas.schema import Reference

CORRELATION_HEADER = "X-Correlation-Id"
TRACEABILITY_HEADER = "X-Traceability-Id"
Headers = list[tuple[str, str | bytes | None]]
"""Kafka headers in their order, in the client's form. Records may share a finished list, so it is never changed."""


def new_correlation_id() -> str:
    """16 bytes in 22 characters, as the original writes a UUID."""
    return base64.urlsafe_b64encode(os.urandom(16))[:22].decode("ascii")


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


class Outgoing(NamedTuple):
    """One record in the form that Kafka gets."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp: int
    """Milliseconds since the epoch; 0 means now."""
    headers: Headers


class DeliveryError(Enum):
    """The reason why a record was not written, with the contract's number."""

    AUTHENTICATION = 40101
    AUTHORIZATION = 40301
    UNKNOWN_TOPIC = 40401
    UNKNOWN_PARTITION = 40402
    KAFKA = 50002
    RETRIABLE = 50003


@dataclass(slots=True)
class Delivered:
    """The record is in Kafka, at this offset. The class is not frozen: each record has an object, and a frozen object
    takes thrice as long."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The record is not in Kafka, or its outcome is unknown."""

    error: DeliveryError
    text: str
    too_large: bool = False
    """Whether the record is too large for the sidecar (`max_record_bytes`), or for its topic (`max.message.bytes`)."""


Delivery = Delivered | Failed
