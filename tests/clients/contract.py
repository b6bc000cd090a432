"""What every client driver offers, and the words in which the tests speak of records.

A driver wraps one client library, unmodified and with its own defaults wherever the test does not say otherwise.
It hides how a library is called, never what it answers: errors leave a driver as `ClientError`, nothing is retried.
Keys, values and header values are text, because command-line clients carry nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Protocol, runtime_checkable

# Long enough for a busy two-core machine, short enough that a hanging client fails its own test and not the run.
OPERATION_TIMEOUT_SECONDS = 60.0


class ClientError(Exception):
    """An error as the application that uses the client would have seen it."""


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Can(Enum):
    """What not every client can do."""

    SEND_HEADERS = auto()
    SET_TIMESTAMPS = auto()
    TELL_OFFSETS = auto()  # of the records it sent
    CONSUME = auto()
    SUBSCRIBE_TO_PATTERN = auto()
    READ_COMMITTED = auto()
    LIST_GROUPS = auto()  # and tell their offsets, as an administrator
    LOG_IN = auto()  # by SCRAM-SHA-256
    TRANSACT = auto()  # records and the offsets of a group


EVERYTHING = frozenset(Can)
ALL_COMPRESSIONS = frozenset(Compression)


@dataclass(frozen=True, slots=True)
class Message:
    """A record before it is sent."""

    topic: str
    value: str
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a consumer got it."""

    topic: str
    partition: int
    offset: int
    value: str
    key: str | None
    headers: tuple[tuple[str, str], ...]
    timestamp_ms: int

    @property
    def position(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record that the producer reported as delivered; without a place if the client does not tell it."""

    value: str
    topic: str
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Sending:
    """How to produce; a producer is idempotent whenever its library can be and acks are `all`."""

    acks: Acks = Acks.ALL
    compression: Compression = Compression.NONE

    @property
    def idempotent(self) -> bool:
        return self.acks is Acks.ALL

    @property
    def acknowledged(self) -> bool:
        return self.acks is not Acks.NONE


@dataclass(frozen=True, slots=True)
class Reading:
    """How to consume: as the only member of the group, from its committed offsets or else the earliest.

    One topic that begins with `^` is a regular expression, as in librdkafka.
    """

    topics: tuple[str, ...]
    group: str
    count: int
    isolation: Isolation = Isolation.READ_UNCOMMITTED

    @property
    def pattern(self) -> str | None:
        return self.topics[0] if self.topics[0].startswith("^") else None


@dataclass(frozen=True, slots=True)
class Copying:
    """One transaction: records of `source`, read by the group, are written to each topic of `targets`, offsets too."""

    transactional_id: str
    group: str
    source: str
    targets: tuple[str, ...]
    count: int
    commits: bool = True


class Client(Protocol):
    """One client library behind the operations that an application uses."""

    @property
    def name(self) -> str: ...

    @property
    def can(self) -> frozenset[Can]: ...

    @property
    def compressions(self) -> frozenset[Compression]: ...

    async def produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        """Sends all messages through one producer and returns when each is delivered."""
        ...

    async def consume(self, reading: Reading) -> list[Received]:
        """Reads exactly `reading.count` records, commits exactly these and leaves the group."""
        ...


@runtime_checkable
class TransactionalClient(Client, Protocol):
    """A client library that has transactions."""

    async def copy(self, copying: Copying) -> None:
        """Reads exactly `copying.count` records from the group's offsets on, then commits or aborts the transaction."""
        ...


class Admin(Protocol):
    """The operations of an administrator's tool."""

    @property
    def name(self) -> str: ...

    @property
    def can(self) -> frozenset[Can]: ...

    async def create_topic(self, topic: str, partitions: int) -> None: ...

    async def delete_topic(self, topic: str) -> None: ...

    async def topics(self) -> set[str]: ...

    async def partitions(self, topic: str) -> int: ...

    async def topic_config(self, topic: str) -> Mapping[str, str]: ...

    async def brokers(self) -> set[str]:
        """Addresses (host:port) of the brokers that the client sees."""
        ...

    async def groups(self) -> set[str]: ...

    async def committed(self, group: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """Committed offsets of the group for these topics; partitions without one are left out."""
        ...

    async def close(self) -> None: ...
