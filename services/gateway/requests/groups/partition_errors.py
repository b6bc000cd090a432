"""The error code of each partition of a request that went to several clusters, as it becomes known."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from services.gateway.wire.errors import ErrorCode


class _Partition(Protocol):
    partition_index: int


class _Told(Protocol):
    partition_index: int
    error_code: int


class _Topic(Protocol):
    name: str

    @property
    def partitions(self) -> Sequence[_Partition]: ...


class _ToldTopic(Protocol):
    name: str

    @property
    def partitions(self) -> Sequence[_Told]: ...


class PartitionErrors(dict[tuple[str, int], int]):
    """Error codes by topic and partition."""

    def settle(self, topics: Iterable[_Topic], error: int) -> None:
        """Sets the same code for all partitions of these topics."""
        self.update({(topic.name, p.partition_index): error for topic in topics for p in topic.partitions})

    def take(self, answered: Iterable[_ToldTopic]) -> None:
        """Takes over the codes that a cluster has answered."""
        self.update({(topic.name, p.partition_index): p.error_code for topic in answered for p in topic.partitions})

    def of(self, topic: str, partition: int) -> int:
        return self.get((topic, partition), ErrorCode.UNKNOWN_SERVER_ERROR)
