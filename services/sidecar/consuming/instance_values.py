"""The values of a consumer instance: its id, its options, its topics, and its status."""

from dataclasses import dataclass
from enum import Enum

from services.sidecar.formats import Format
from services.sidecar.records import Partition


@dataclass(frozen=True, slots=True)
class InstanceId:
    """An instance within its group."""

    group: str
    instance: str


class EndCause(Enum):
    """The reason why an instance was closed, for control and metrics."""

    DELETED = "deleted by the backend"
    IDLE = "idle for too long"
    ORDERED = "removed by an operator"
    ELSEWHERE = "another sidecar holds it"
    NOT_HELD = "its sidecar does not hold it"
    FAILED = "could not be created"


class GroupProtocol(Enum):
    """The group protocol: the members assign partitions (classic), or the broker does (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class HeaderShape(Enum):
    """How the headers of a record look in an answer."""

    MAP = "map"
    """Names and texts; the last of the same name wins."""
    LIST = "list"
    """Key and value (base64) of each, as they are in Kafka."""


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """The options that an instance was created with."""

    key_format: Format
    value_format: Format
    read_timeout: float
    """Seconds that a read waits at most."""
    min_bytes: int = -1
    """A read answers when it has so many bytes; -1 means with the first record."""
    offset_reset: str = "earliest"
    auto_commit: bool = False
    headers: HeaderShape = HeaderShape.MAP
    group_instance_id: str = ""
    """Makes it a static member: one that may be away for a session without a rebalance."""
    group_protocol: GroupProtocol = GroupProtocol.CLASSIC


@dataclass(frozen=True, slots=True)
class Interest:
    """The requested source of an instance: topics or a pattern, shared with its group, or partitions of its own."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[Partition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern or self.partitions)

    @property
    def is_shared(self) -> bool:
        """Whether the group decides which partitions are read."""
        return bool(self.topics or self.pattern)


NOTHING = Interest()


class Standing(Enum):
    """Whether an instance gives records, by an operator's order."""

    GIVING = "giving"
    PAUSED = "paused"
    DRAINING = "draining"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read."""

    max_bytes: int
    timeout: float | None = None
    """Seconds; may only shorten the instance's time-out, except during the join of the group."""
    format: Format | None = None
    """Renders values in this format instead of the instance's; binary does so with keys too."""
    as_events: bool = False
    """Each record's value is the CloudEvent that it is, or one around it."""


class InstanceState(Enum):
    """The state of an instance."""

    IDLE = "idle"
    """The instance subscribes to nothing."""
    JOINING = "joining"
    READING = "reading"
    PAUSED = "paused"
    DRAINING = "draining"
    DRAINED = "drained"


UNKNOWN = -1
"""In place of an offset or a lag that is not known."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The position of an instance in one partition."""

    partition: Partition
    position: int
    """The offset that the instance gives next; UNKNOWN if it has given none."""
    committed: int
    """The next offset by the group's last commit; UNKNOWN without one."""
    lag: int
    """Records between position (committed, if there is none) and the end; UNKNOWN if the end is not known."""


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """How an instance does."""

    state: InstanceState
    partitions: tuple[PartitionStatus, ...]
    last_used_at: float
    """Seconds since the epoch."""
    problem: str = ""
    """The reason why the instance cannot read; empty if it can."""
