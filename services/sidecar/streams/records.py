"""The types of streams: a record on its way through a topology, and its results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from services.sidecar.formats import Format
from services.sidecar.producing.produce_request import SchemaChoice
from services.sidecar.records import Outgoing, RawRecord

T = TypeVar("T")
LATEST = SchemaChoice()
"""The newest schema of the topic's subject, if the format has schemas."""


class StreamRecord(NamedTuple):
    """A record on its way through a topology."""

    key: Any
    value: Any
    timestamp: int
    """Event time, in milliseconds since the epoch."""
    headers: list[tuple[str, bytes | None]]
    source: RawRecord
    """The record of Kafka that led to this record; it becomes the dead letter if this record cannot be processed."""


class Windowed(TypedDict, Generic[T]):
    """The value of a window, as a JSON object."""

    start: int
    end: int
    """The first moment after the window. Start and end are milliseconds since the epoch."""
    value: T


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one length, one after the other. Times in milliseconds."""

    size: int
    grace: int = 0
    """The time after its end in which a window still takes records, by the latest event time seen."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.grace < 0:
            raise ValueError(
                f"a window of {self.size} ms with {self.grace} ms of grace: size is 1 ms or more, grace not negative"
            )

    def start_of(self, timestamp: int) -> int:
        return timestamp - timestamp % self.size

    def last_closed(self, now: int) -> int:
        """The latest start of a window that takes no more records."""
        return now - self.size - self.grace


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A store by its name. Two definitions of a topology may share a store that they define alike."""

    name: str
    window: Tumbling | None = None

    @property
    def shape(self) -> str:
        """The kind of the store, which must not change while the store has entries."""
        return f"windows of {self.window.size} ms" if self.window is not None else "one value for each key"


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that the topology writes to."""

    topic: str
    key_format: Format
    value_format: Format
    key_schema: SchemaChoice = LATEST
    value_schema: SchemaChoice = LATEST
    is_internal: bool = False
    """Whether the topic is internal to the topology."""


class Written(NamedTuple):
    """A record for a topic."""

    target: Target
    record: StreamRecord
    encoded: Outgoing | None
    """None in a TopologyTestDriver."""


class OnError(Enum):
    """The handling of a record for which code of a topology raises."""

    STOP = "stop"
    """The topology stops in front of the record."""
    DEAD_LETTER = "dead_letter"
    """The record becomes a dead letter, and the topology goes on."""


class TopologyError(ValueError):
    """A topology cannot work; the text has the fact, the place and the remedy."""


class OperatorError(Exception):
    """Code of a topology raised for a record; all effects of the record are undone."""

    def __init__(self, operator: str, record: StreamRecord, cause: Exception) -> None:
        source = record.source
        super().__init__(
            f"{operator} raised {type(cause).__name__} for {source.topic}-{source.partition} offset {source.offset}: "
            f"{cause}"
        )
        self.operator = operator
        self.record = record
        self.cause = cause
