"""The progress of a consumer in each of its partitions: the given and the committed offsets."""

from collections.abc import Iterable, Mapping

from services.sidecar.consuming.instance_values import UNKNOWN, PartitionStatus
from services.sidecar.records import Commit, Consumed, Partition


class Progress:
    """For each partition, the next offset to give and the offset of the last commit. Unknown offsets are left out."""

    def __init__(self) -> None:
        self.given: dict[Partition, int] = {}
        self.committed: dict[Partition, int] = {}

    def gave(self, records: Iterable[Consumed]) -> None:
        last = {(record.topic, record.partition): record.offset for record in records}
        for place, offset in last.items():
            self.given[Partition(*place)] = offset + 1

    def took_back(self, places: Iterable[tuple[Partition, int]]) -> None:
        """Makes the smallest of these offsets the next offset of its partition again."""
        for partition, offset in places:
            self.given[partition] = min(offset, self.given.get(partition, offset))

    def commits(self, commits: Iterable[Commit]) -> None:
        for commit in commits:
            self.committed[commit.partition] = commit.offset

    def forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.given.pop(partition, None)
            self.committed.pop(partition, None)

    def clear(self) -> None:
        self.given.clear()
        self.committed.clear()

    @property
    def is_committed(self) -> bool:
        """Whether all that was given is committed."""
        return all(self.committed.get(partition, UNKNOWN) >= offset for partition, offset in self.given.items())

    def status(
        self, partitions: Iterable[Partition], bounds: Mapping[Partition, tuple[int, int]]
    ) -> tuple[PartitionStatus, ...]:
        """Each of these partitions; `bounds` has the first offset and the end of those where they are known."""
        return tuple(self._status(partition, bounds.get(partition)) for partition in partitions)

    def _status(self, partition: Partition, bounds: tuple[int, int] | None) -> PartitionStatus:
        position = self.given.get(partition, UNKNOWN)
        committed = self.committed.get(partition, UNKNOWN)
        lag = UNKNOWN
        if bounds is not None:
            first, end = bounds
            next_offset = next((offset for offset in (position, committed) if offset != UNKNOWN), first)
            lag = max(end - max(next_offset, first), 0)
        return PartitionStatus(partition, position, committed, lag)
