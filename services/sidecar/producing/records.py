"""The words of producing: what a caller asks for, what Kafka gets, and how it went."""

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
    references: tuple[Reference, ...] = ()
    """What a raw schema refers to."""
    message: str | None = None
    """Full name of a Protobuf message, where it is not the file's first."""


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


@dataclass(slots=True)
class Delivered:
    """The record is in Kafka, here. Not frozen: there is one for each record, and that takes thrice as long."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The record is not in Kafka, or nobody can tell."""

    error: DeliveryError
    text: str
    too_large: bool = False
    """For the sidecar (`max_record_bytes`), or for its topic (`max.message.bytes`)."""


Delivery = Delivered | Failed
