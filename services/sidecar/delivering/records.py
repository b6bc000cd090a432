"""The words of delivery: what is given to the backend, and what became of each record."""

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
    """Where the backend takes it, if rules of content say so; empty for its usual path."""
    occasion: str = ""
    """Why the backend is given records that it has had before, by a name: a replay. It must not take them for a mere
    repetition."""


class Outcome(Enum):
    """What becomes of a record."""

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"
    """Again, later: never an end."""
    DROP = "DROP"
    """The backend does not want it; that is recorded, and nothing else."""
    DEAD_LETTER = "DEAD_LETTER"


class Reason(Enum):
    """Why a record is a dead letter; the header `dlq.reason`."""

    BACKEND = "backend"
    """The backend said so."""
    RETRIES = "retries"
    """It failed as often as it may."""
    DESERIALIZATION = "deserialization"
    OVERSIZE = "oversize"


@dataclass(frozen=True, slots=True)
class ReplyRecord:
    """A record that is written because of a delivery: a reply that the backend wants, or a dead letter."""

    topic: str
    record: Outgoing
    of: RawRecord | None = None
    """The record that a reply belongs to."""
    smaller: "Callable[[], ReplyRecord] | None" = None
    """What is written in its place when it is too large for Kafka; None: nothing can be."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one record, for good."""

    record: RawRecord
    outcome: Outcome
    """Never RETRY."""
    reason: Reason | None = None
    """Of a dead letter."""
    stacktrace: str = ""
    """What the backend, or the reader, says of the failure."""
    correlation_id: str = ""
    traceability_id: str = ""
    attempts: int = 1
    """How often the backend was asked."""
    first_failure: int = 0
    """When it failed first, in milliseconds since the epoch; 0 if it never did."""
    becomes: Sequence[dict[str, object]] | None = None
    """Keys and values that go on in its place, where it goes on (streams); None: the record itself."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a batch. Its records may be committed once dead letters and replies are in Kafka."""

    partition: Partition
    verdicts: tuple[Verdict, ...]
    """One for each record, in their order."""
    replies: Sequence[ReplyRecord] = field(default=())
