"""The values of delivery: the records for the backend, and the outcome of each record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from services.sidecar.consuming.records import Consumed, Partition
from services.sidecar.producing.records import Outgoing


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


class Deliverable(NamedTuple):
    """A record, and how the backend sees it."""

    raw: RawRecord
    shown: Consumed


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one partition in their order, none left out between them but those that do not concern the backend."""

    partition: Partition
    records: tuple[Deliverable, ...]
    path: str = ""
    """The path at the backend, if rules of content name one; empty for the usual path."""
    occasion: str = ""
    """The name of the replay if the backend gets records that it has had before.

    The backend must not take them for a mere repetition.
    """


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
class ReplyRecord:
    """A record that is written because of a delivery: a reply that the backend wants, or a dead letter."""

    topic: str
    record: Outgoing
    of: RawRecord | None = None
    """The record that a reply belongs to."""
    smaller: "Callable[[], ReplyRecord | None] | None" = None
    """Makes the smaller record that replaces one too large for Kafka, or None if the record is given up. Without this,
    the record is written again as it is."""


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


@dataclass(frozen=True, slots=True)
class Settlement:
    """The verdicts and replies of a batch. Its records may be committed once dead letters and replies are in Kafka."""

    partition: Partition
    verdicts: tuple[Verdict, ...]
    """One for each record, in their order."""
    replies: Sequence[ReplyRecord] = field(default=())
