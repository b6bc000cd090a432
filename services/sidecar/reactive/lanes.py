"""What is held of one partition: in which order it goes out, and how far it is done.

1. A partition has one lane, or several over which its keys are spread; records of one key are always in the same one.
2. A lane is in the order of the partition, and gives one batch at a time: the next one comes when that one is settled.
   So whatever becomes of a batch, order is kept in its lane, and other lanes do not wait for it.
3. Lanes settle in any order. What the group may be told is the offset before which nothing is open. What is settled
   behind an open record counts as held, though its bytes are gone: it comes again after a kill, so it needs a bound.
4. The number of lanes changes only while no batch is out: until then none begins.
"""

import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.sidecar.consuming.records import Partition
from services.sidecar.delivering.records import RawRecord


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large a batch becomes, and how long it waits to."""

    max_records: int
    max_bytes: int
    """Keys and values; the first record goes however large it is."""
    linger_seconds: float


def size_of(record: RawRecord) -> int:
    """Bytes of key and value."""
    return len(record.key or b"") + len(record.value or b"")


class Lane:
    """Records that wait, in their order."""

    __slots__ = ("_bytes", "_since", "_waiting", "is_out")

    def __init__(self) -> None:
        self._waiting: deque[RawRecord] = deque()
        self._bytes = 0
        self._since = 0.0
        self.is_out = False
        """A batch of it is on its way, and not settled."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, record: RawRecord, now: float) -> None:
        if not self._waiting:
            self._since = now
        self._waiting.append(record)
        self._bytes += size_of(record)

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
            size = size_of(self._waiting[0])
            if taken and size > room:
                break
            room -= size
            taken.append(self._waiting.popleft())
        self._bytes -= limits.max_bytes - room
        return taken

    def give_back(self, records: Sequence[RawRecord]) -> None:
        """The end of the last batch was none: these come next again."""
        self._waiting.extendleft(reversed(records))
        self._bytes += sum(map(size_of, records))

    def clear(self) -> list[RawRecord]:
        """All that waited; nothing does any more."""
        waiting, self._waiting, self._bytes = list(self._waiting), deque(), 0
        return waiting


class PartitionLanes:
    """One partition for as long as it is this consumer's."""

    def __init__(self, partition: Partition, lanes: int = 1) -> None:
        self.partition = partition
        self.lanes = [Lane() for _ in range(lanes)]
        self._wanted = lanes
        self._open: deque[tuple[int, int]] = deque()
        """Offset and size of the first record that is not settled, and of all that came after it."""
        self._done: set[int] = set()
        self.next_offset: int | None = None
        """Nothing before it is open; None before anything was settled."""

    @property
    def is_changing(self) -> bool:
        """It waits for its last batch to have other lanes: none begins."""
        return self._wanted != len(self.lanes)

    @property
    def is_quiet(self) -> bool:
        """No batch of it is on its way."""
        return not any(lane.is_out for lane in self.lanes)

    def add(self, record: RawRecord, now: float) -> Lane:
        """The lane that it waits in now."""
        self._open.append((record.offset, size_of(record)))
        lane = self._lane_of(record)
        lane.add(record, now)
        return lane

    def settle(self, records: Sequence[RawRecord]) -> tuple[int, int]:
        """What became of these is in Kafka. How many records, and bytes, are held no more."""
        self._done.update(record.offset for record in records)
        count = freed = 0
        while self._open and self._open[0][0] in self._done:
            offset, size = self._open.popleft()
            self._done.discard(offset)
            self.next_offset = offset + 1
            count, freed = count + 1, freed + size
        return count, freed

    def drop_waiting(self) -> list[RawRecord]:
        """What waits goes out no more; it is not settled either."""
        return [record for lane in self.lanes for record in lane.clear()]

    def spread(self, lanes: int) -> None:
        """From now on over so many lanes, as soon as no batch is out (`respread`)."""
        self._wanted = lanes

    def respread(self, now: float) -> bool:
        """Whether the lanes are as they were wanted by now."""
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
        # the same in each process, so that a batch that comes again may be the same batch; no key, no order
        place = record.offset if record.key is None else zlib.crc32(record.key)
        return self.lanes[place % count]


def held_by(records: Iterable[RawRecord]) -> tuple[int, int]:
    """How many they are, and their bytes."""
    sizes = [size_of(record) for record in records]
    return len(sizes), sum(sizes)
