"""Messages of Kafka on their way to the backend: held before they are given, and kept until they are acknowledged."""

from collections import deque
from collections.abc import Container, Iterable

from confluent_kafka import Message

from services.sidecar.records import Partition


def place_of(message: Message) -> Partition:
    """The partition of a message."""
    return Partition(message.topic() or "", message.partition() or 0)


def size_of(message: Message) -> int:
    """Bytes of key and value."""
    return len(message) + len(message.key() or b"")


class HeldRecords:
    """Messages that came from Kafka and were not given yet, in their order."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message) -> None:
        self._messages.append(message)
        self.bytes += size_of(message)

    def take(self, max_records: int, max_bytes: int) -> list[Message]:
        """The messages that fit, from the front; at least the first message, however large."""
        taken: list[Message] = []
        room = max_bytes
        while self._messages and len(taken) < max_records:
            size = size_of(self._messages[0])
            if taken and size > room:
                break
            room -= size
            taken.append(self._messages.popleft())
        self.bytes -= max_bytes - room
        return taken

    def give_back(self, messages: list[Message]) -> None:
        """Puts the messages back in front, in this order."""
        self._messages.extendleft(reversed(messages))
        self.bytes += sum(map(size_of, messages))

    def first_offsets(self) -> dict[Partition, int]:
        """The offset of the first message of each partition."""
        return {place_of(message): message.offset() or 0 for message in reversed(self._messages)}

    def drop(self, partitions: Container[Partition]) -> None:
        """Forgets the held messages of these partitions."""
        self._messages = deque(kept for kept in self._messages if place_of(kept) not in partitions)
        self.bytes = sum(map(size_of, self._messages))

    def clear(self) -> None:
        self._messages.clear()
        self.bytes = 0


class Unacknowledged:
    """Messages that a stream gave and that are to come again unless they are acknowledged. Bounded by its window."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._given: dict[Partition, deque[Message]] = {}
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        """How many more records may be given now."""
        return 0 if self._count and self._bytes >= self._max_bytes else self._max_records - self._count

    def add(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._given.setdefault(place_of(message), deque()).append(message)
            self._count += 1
            self._bytes += size_of(message)

    def acknowledge(self, partition: Partition, next_offset: int) -> None:
        """Acknowledges all records of a partition before this offset."""
        waiting = self._given.get(partition, deque())
        while waiting and (waiting[0].offset() or 0) < next_offset:
            self._forget(waiting.popleft())
        if not waiting:
            self._given.pop(partition, None)

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forgets partitions that another member has now."""
        for partition in partitions:
            for message in self._given.pop(partition, ()):
                self._forget(message)

    def take_back(self) -> list[Message]:
        """All that is not acknowledged, each partition in its order; nothing waits any more."""
        waiting = [message for messages in self._given.values() for message in messages]
        self._given.clear()
        self._count = self._bytes = 0
        return waiting

    def _forget(self, message: Message) -> None:
        self._count -= 1
        self._bytes -= size_of(message)
