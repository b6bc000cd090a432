"""The held records of each partition, and the partitions that have to rest because their share is full.

Each partition has the same share of the whole, so that a slow partition fills only its own share. A partition rests
when its share is full, and goes on when half of the share is free: a new start costs the records that were fetched
ahead. Records that come in one go may exceed the share, and at least one record always fits.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from services.sidecar.records import Partition


@dataclass(slots=True)
class _Held:
    records: int = 0
    size: int = 0
    rests: bool = False


class PartitionShares:
    """The shares of one consumer's partitions; all methods belong to the client's thread."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._held: dict[Partition, _Held] = {}

    @property
    def records(self) -> int:
        return sum(held.records for held in self._held.values())

    @property
    def size(self) -> int:
        return sum(held.size for held in self._held.values())

    @property
    def resting(self) -> set[Partition]:
        """The partitions whose share is full."""
        return {partition for partition, held in self._held.items() if held.rests}

    def open(self, partitions: Iterable[Partition]) -> None:
        """Adds partitions, of which no record is held."""
        for partition in partitions:
            self._held[partition] = _Held()

    def close(self, partitions: Collection[Partition]) -> None:
        """Removes partitions, with all their held records."""
        for partition in partitions:
            self._held.pop(partition, None)

    def took(self, partition: Partition, records: int, size: int) -> bool:
        """Adds held records. Whether the partition has to rest from now on."""
        held = self._held.get(partition)
        if held is None:
            return False
        held.records += records
        held.size += size
        if held.rests or not self._fills(held, 1):
            return False
        held.rests = True
        return True

    def freed(self, partition: Partition, records: int, size: int) -> bool:
        """Removes held records. Whether the partition may go on from now on."""
        held = self._held.get(partition)
        if held is None:
            return False
        held.records = max(held.records - records, 0)
        held.size = max(held.size - size, 0)
        if not held.rests or self._fills(held, 2):
            return False
        held.rests = False
        return True

    def _fills(self, held: _Held, divisor: int) -> bool:
        """Whether a partition has reached its share, or a part of the share."""
        parts = len(self._held) * divisor
        return held.records * parts >= max(self._max_records, parts) or held.size * parts >= self._max_bytes
