"""The words of consuming."""

from dataclasses import dataclass
from enum import Enum

from services.sidecar.formats import Format


@dataclass(frozen=True, slots=True)
class InstanceId:
    """An instance within its group."""

    group: str
    instance: str


class EndCause(Enum):
    """Why an instance was closed, as control and metrics hear it."""

    DELETED = "deleted by the backend"
    IDLE = "idle for too long"
    STOPPED = "sidecar stopped"
    FAILED = "could not be created"


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """What an instance was created with."""

    key_format: Format
    value_format: Format
    read_timeout: float
    """Seconds that a read waits at most."""
    min_bytes: int = -1
    """A read answers once it has so much; -1 means as soon as there is something."""
    offset_reset: str = "earliest"
    auto_commit: bool = False


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read."""

    max_bytes: int
    timeout: float | None = None
    """Seconds; can only shorten what the instance says, except while the group is being joined."""
    format: Format | None = None
    """Renders keys and values in this format instead of the instance's."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """One record, as the backend gets it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: object
    value: object
    headers: dict[str, str]
    size: int


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition of a topic."""

    topic: str
    partition: int


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
