"""The state that a session keeps for each source partition, and its counters. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from services.router.forwarding.memory import SourcePartition
from services.router.forwarding.points import Points

FOLLOWING = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""The errors of records behind a record that could not be delivered."""


@dataclass(slots=True)
class Counts:
    """The work of a worker since its start. Only committed records count."""

    written: int = 0
    filtered: int = 0
    dead: int = 0
    been_there: int = 0
    """Not copied, because they have been on the target before."""
    bytes: int = 0
    transactions: int = 0

    def add(self, other: Counts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Lane:
    """The way of one source partition."""

    source: SourcePartition
    target_topic: str
    """The target topic of a mirror."""
    position: int
    """The next offset to read, as of this transaction."""
    committed: list[int]
    """As each target remembers it."""
    points: Points
    began: int = 0
    """The offset at which this transaction began."""
    first: int = -1
    """Offset on the target of this transaction's first record, once it has one."""
    failure: Any = None
    """Why a record did not arrive."""
    point_at: float = 0.0
    """When a signpost was last kept."""

    def set_out(self) -> None:
        """A transaction begins."""
        self.began = self.position
        self.first = -1

    @property
    def is_refused(self) -> bool:
        """A record did not arrive, and `failure` is the cause, not its consequence for the records behind."""
        return self.failure is not None and self.failure.code() not in FOLLOWING

    def arrived(self, error: Any, message: Any) -> None:
        """A record was delivered, or can't be. Called for each: no other word says why a transaction fails."""
        if error is not None:
            if not self.is_refused:
                self.failure = error
        elif self.first < 0:
            self.first = message.offset()


@dataclass(frozen=True, slots=True)
class PartitionState:
    """For reports."""

    source: SourcePartition
    position: int
    end: int
