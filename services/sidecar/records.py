"""The values of records that several folders share: a record in each of its forms, its place, and its outcome.

A record has a form in Kafka (`RawRecord`), a form for the backend (`Consumed`) and a form for a write (`Outgoing`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

CORRELATION_HEADER = "X-Correlation-Id"
TRACEABILITY_HEADER = "X-Traceability-Id"
Headers = list[tuple[str, str | bytes | None]]
"""Kafka headers in their order, in the client's form. Records may share a finished list, so it is never changed."""


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RawRecord(NamedTuple):
    """A record as it is in Kafka."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class Consumed(NamedTuple):
    """One record, as the backend gets it. A tuple: hundreds are made for each read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: object
    value: object
    headers: list[tuple[str, bytes | None]]
    size: int
    """Bytes of key and value."""
    key_format: str = ""
    value_format: str = ""
    """The formats that the record showed by itself; empty where the reader named the format."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """How far a partition was read: the offset of the last record, and a note to keep with it."""

    partition: Partition
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """How it went: the next offset that the group will read."""

    partition: Partition
    offset: int
    metadata: str = ""


class Outgoing(NamedTuple):
    """One record in the form that Kafka gets."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp: int
    """Milliseconds since the epoch; 0 means now."""
    headers: Headers

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


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


WriteOutcome = Delivered | Failed


class Outcome(Enum):
    """The outcome of a record."""

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"
    """The record comes again later: never a final outcome."""
    DROP = "DROP"
    """The backend does not want the record. That is recorded, and has no other effect."""
    DEAD_LETTER = "DEAD_LETTER"


class Reason(Enum):
    """Why a record is a dead letter; the header `dlq.reason`."""

    BACKEND = "backend"
    """The backend said so."""
    RETRIES = "retries"
    """The record has used all its attempts."""
    DESERIALIZATION = "deserialization"
    OVERSIZE = "oversize"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The final outcome of one record."""

    record: RawRecord
    outcome: Outcome
    """Never RETRY."""
    reason: Reason | None = None
    """The reason of a dead letter."""
    stacktrace: str = ""
    """The text of the backend, or of the reader, about the failure."""
    correlation_id: str = ""
    traceability_id: str = ""
    attempts: int = 1
    """How often the backend was asked."""
    first_failure: int = 0
    """The time of the first failure, in milliseconds since the epoch; 0 if the record never failed."""
    becomes: Sequence[dict[str, object]] | None = None
    """Keys and values that continue in a stream in place of the record; None: the record itself."""
