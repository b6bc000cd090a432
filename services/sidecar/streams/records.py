"""The words of streams: a record on its way through a topology, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from services.sidecar.delivering.records import RawRecord
from services.sidecar.formats import Format
from services.sidecar.producing.records import Outgoing, SchemaChoice

T = TypeVar("T")
LATEST = SchemaChoice()
"""The newest schema of the topic's subject, where the format has schemas."""


class StreamRecord(NamedTuple):
    """A record on its way."""

    key: Any
    value: Any
    timestamp: int
    """Event time, in milliseconds since the epoch."""
    headers: list[tuple[str, bytes | None]]
    source: RawRecord
    """The record of Kafka that it goes back to: what becomes a dead letter if it cannot be processed."""


class Windowed(TypedDict, Generic[T]):
    """A value of a window, as the values of streams look like JSON."""

    start: int
    end: int
    """The first moment after it; milliseconds since the epoch, both."""
    value: T


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one length, one after the other. Times in milliseconds."""

    size: int
    grace: int = 0
    """How long after its end a window still takes records, by the latest event time seen."""

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
    """A store by its name. Two definitions of a topology may share it if they say the same of it."""

    name: str
    window: Tumbling | None = None

    @property
    def shape(self) -> str:
        """What must not change while there are entries."""
        return f"windows of {self.window.size} ms" if self.window is not None else "one value for each key"


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that is written."""

    topic: str
    key_format: Format
    value_format: Format
    key_schema: SchemaChoice = LATEST
    value_schema: SchemaChoice = LATEST
    is_internal: bool = False
    """Whether the topology made it for itself."""


class Written(NamedTuple):
    """A record for a topic."""

    target: Target
    record: StreamRecord
    encoded: Outgoing | None
    """None in a trial."""


class OnError(Enum):
    """What happens when code of a topology raises for a record."""

    STOP = "stop"
    """The topology stops in front of it."""
    DEAD_LETTER = "dead_letter"
    """The record becomes a dead letter, and the topology goes on."""


class TopologyError(ValueError):
    """A topology that cannot be: the fact, the place and the way out."""


class OperatorError(Exception):
    """Code of a topology raised for a record; nothing of what it did for this record is left."""

    def __init__(self, operator: str, record: StreamRecord, cause: Exception) -> None:
        source = record.source
        super().__init__(
            f"{operator} raised {type(cause).__name__} for {source.topic}-{source.partition} offset {source.offset}: "
            f"{cause}"
        )
        self.operator = operator
        self.record = record
        self.cause = cause
