"""The held records of one partition: their order of delivery, and the progress of the partition.

1. A partition has one lane, or several lanes over which its keys are spread; records of one key are always in the same
   lane.
2. A lane keeps the order of the partition, and gives one batch at a time: the next batch comes when that batch is
   settled. So each lane keeps its order for any outcome, and other lanes do not wait.
3. Lanes settle in any order. The offset to commit is the offset before which all records are settled. A settled record
   behind an open record counts as held, though its bytes are gone: it comes again after a kill, so it needs a bound.
4. The number of lanes changes only while no batch is out; until then no batch begins.
"""

import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.sidecar.records import Partition, RawRecord


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The largest size of a batch, and its longest wait for more records."""

    max_records: int
    max_bytes: int
    """Bytes of keys and values; the first record goes at any size."""
    linger_seconds: float


class Lane:
    """Records that wait, in their order."""

    __slots__ = ("_bytes", "_since", "_waiting", "is_out")

    def __init__(self) -> None:
        self._waiting: deque[RawRecord] = deque()
        self._bytes = 0
        self._since = 0.0
        self.is_out = False
        """Whether a batch of this lane is on its way, and not settled."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, record: RawRecord, now: float) -> None:
        if not self._waiting:
            self._since = now
        self._waiting.append(record)
        self._bytes += record.size

    def lingers(self, now: float, limits: BatchLimits) -> float:
        """Seconds that a batch still waits for more records; 0 when it may go."""
        if len(self._waiting) >= limits.max_records or self._bytes >= limits.max_bytes:
            return 0.0
        return max(self._since + limits.linger_seconds - now, 0.0)

    def take(self, limits: BatchLimits) -> list[RawRecord]:
        """A batch, from the front."""
        taken: list[RawRecord] = []
        room = limits.max_bytes
        while self._waiting and len(taken) < limits.max_records:
            size = self._waiting[0].size
            if taken and size > room:
                break
            room -= size
            taken.append(self._waiting.popleft())
        self._bytes -= limits.max_bytes - room
        return taken

    def give_back(self, records: Sequence[RawRecord]) -> None:
        """Puts unsettled records of the last batch back to the front: they come next again."""
        self._waiting.extendleft(reversed(records))
        self._bytes += sum(one.size for one in records)

    def clear(self) -> list[RawRecord]:
        """Empties the lane, and returns its records."""
        waiting, self._waiting, self._bytes = list(self._waiting), deque(), 0
        return waiting


class PartitionLanes:
    """One partition, for as long as this consumer has it."""

    def __init__(self, partition: Partition, lanes: int = 1) -> None:
        self.partition = partition
        self.lanes = [Lane() for _ in range(lanes)]
        self._wanted = lanes
        self._open: deque[tuple[int, int]] = deque()
        """Offset and size of the first record that is not settled, and of all records after it."""
        self._done: set[int] = set()
        self.next_offset: int | None = None
        """The offset before which all records are settled; None before the first settled record."""

    @property
    def is_changing(self) -> bool:
        """Whether the partition waits for its last batch to change its lanes; no batch begins meanwhile."""
        return self._wanted != len(self.lanes)

    @property
    def is_quiet(self) -> bool:
        """Whether no batch of the partition is on its way."""
        return not any(lane.is_out for lane in self.lanes)

    def add(self, record: RawRecord, now: float) -> Lane:
        """Adds a record, and returns its lane."""
        self._open.append((record.offset, record.size))
        lane = self._lane_of(record)
        lane.add(record, now)
        return lane

    def settle(self, records: Sequence[RawRecord]) -> tuple[int, int]:
        """Settles records whose outcomes are in Kafka. Returns the records and bytes that are not held any more."""
        self._done.update(record.offset for record in records)
        count = freed = 0
        while self._open and self._open[0][0] in self._done:
            offset, size = self._open.popleft()
            self._done.discard(offset)
            self.next_offset = offset + 1
            count, freed = count + 1, freed + size
        return count, freed

    def drop_waiting(self) -> list[RawRecord]:
        """Removes and returns the waiting records, without settling them."""
        return [record for lane in self.lanes for record in lane.clear()]

    def spread(self, lanes: int) -> None:
        """Wants another number of lanes, which `respread` makes as soon as no batch is out."""
        self._wanted = lanes

    def respread(self, now: float) -> bool:
        """Makes the wanted number of lanes if no batch is out. Whether the partition has that number now."""
        if self.is_changing and self.is_quiet:
            waiting = sorted(self.drop_waiting(), key=lambda record: record.offset)
            self.lanes = [Lane() for _ in range(self._wanted)]
            for record in waiting:
                self._lane_of(record).add(record, now)
        return not self.is_changing

    def _lane_of(self, record: RawRecord) -> Lane:
        count = len(self.lanes)
        if count == 1:
            return self.lanes[0]
        # the same lane in each process, so that a repeated batch may be the same batch; records without a key: any lane
        place = record.offset if record.key is None else zlib.crc32(record.key)
        return self.lanes[place % count]


def held_by(records: Iterable[RawRecord]) -> tuple[int, int]:
    """The number of records, and their bytes."""
    sizes = [record.size for record in records]
    return len(sizes), sum(sizes)
