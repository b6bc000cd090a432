"""A batch of records for the backend, and its settlement: the verdicts and the records to write."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.sidecar.records import Consumed, Outgoing, Partition, RawRecord, Verdict


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
class Settlement:
    """The verdicts and replies of a batch. Its records may be committed once dead letters and replies are in Kafka."""

    partition: Partition
    verdicts: tuple[Verdict, ...]
    """One for each record, in their order."""
    replies: Sequence[ReplyRecord] = field(default=())
