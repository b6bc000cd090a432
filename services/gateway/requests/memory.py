"""What outlives a request: per client connection (`Session`), per gateway process (`Memory`). No I/O, all bounded."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

GROUP_HOMES_REMEMBERED = 100_000
"""Groups whose home cluster one gateway remembers: about 20 MB."""
GROUP_HOME_SECONDS = 300.0
"""After this the home of a group is looked up again, should another gateway have seen it move."""


class BoundedCache(Generic[K, V]):
    """Least recently used entries leave when it is full; entries older than their life count as absent."""

    __slots__ = ("_entries", "capacity", "life_s")

    def __init__(self, capacity: int, life_s: float) -> None:
        self.capacity = capacity
        self.life_s = life_s
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K, now: float) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        written, value = entry
        if now - written > self.life_s:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, now: float) -> None:
        self._entries[key] = (now, value)
        self._entries.move_to_end(key)
        if len(self._entries) > self.capacity:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(slots=True)
class Memory:
    """One for each gateway process."""

    group_homes: BoundedCache[str, str] = field(
        default_factory=lambda: BoundedCache(GROUP_HOMES_REMEMBERED, GROUP_HOME_SECONDS)
    )
    """Group id -> name of the cluster whose coordinator it uses."""


BatchKey = tuple[int, int, str, int]
"""Producer id, epoch, topic, partition."""

REFUSALS_REMEMBERED = 10_000
"""Refused (producer, partition) pairs of one connection; a connection with more forgets the oldest."""
REFUSAL_SECONDS = 30.0
"""A refused batch that has not come back by then went another way, or its producer gave it up. Clients try again within
seconds, and report an error after 120 s."""


class Refusals:
    """Batches that were refused and have not come back yet.

    If a batch is refused and the next one of its producer and partition got through, a broker that does not know the
    producer would accept that one, and the first for ever answer OUT_OF_ORDER_SEQUENCE_NUMBER. So once a batch is
    refused, later ones are refused too until its base sequence is seen again. It need not come back here: once its
    topic has moved, a client that knows one node for each cluster uses another connection. So no refusal is for ever.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: OrderedDict[BatchKey, tuple[int, float]] = OrderedDict()
        """Base sequence and end of the waiting, the oldest refusal first."""

    def any(self, now: float) -> bool:
        """Whether any batch is waited for."""
        while self._waiting:
            key, (_, until) = next(iter(self._waiting.items()))
            if now < until:
                return True
            del self._waiting[key]
        return False

    def admits(self, key: BatchKey, base_sequence: int, now: float) -> bool:
        """Whether a batch may pass; the one that was waited for ends the waiting."""
        expected, until = self._waiting.get(key, (base_sequence, now))
        if base_sequence != expected and now < until:
            return False
        self._waiting.pop(key, None)
        return True

    def refuse(self, key: BatchKey, base_sequence: int, now: float) -> None:
        """Remember that this batch was refused; the first of a row of refusals counts."""
        if key in self._waiting:
            return
        self._waiting[key] = (base_sequence, now + REFUSAL_SECONDS)
        if len(self._waiting) > REFUSALS_REMEMBERED:
            self._waiting.popitem(last=False)


@dataclass(slots=True)
class Session:
    """One client connection, as handlers see it."""

    peer: str = ""
    """Address of the client, for log lines."""
    client_id: str | None = None
    software_name: str = ""
    """From ApiVersions v3 and later; empty for clients that do not say."""
    software_version: str = ""
    refusals: Refusals = field(default_factory=Refusals)
