"""A bounded store whose entries also end with their time."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


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

    def get_also_old(self, key: K) -> V | None:
        """The value, also if it no longer counts and has not left yet."""
        _, value = self._entries.get(key, (0.0, None))
        return value

    def put(self, key: K, value: V, now: float) -> None:
        self._entries[key] = (now, value)
        self._entries.move_to_end(key)
        if len(self._entries) > self.capacity:
            self._entries.popitem(last=False)

    def replace(self, key: K, value: V) -> None:
        """Gives an existing entry another value, and leaves its age as it is."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries[key] = (entry[0], value)

    def any(self, now: float) -> bool:
        """Whether an entry still counts; expired entries leave."""
        while self._entries:
            key, (written, _) = next(iter(self._entries.items()))
            if now - written <= self.life_s:
                return True
            del self._entries[key]
        return False

    def entries(self) -> Iterator[tuple[K, V]]:
        """All entries, also those that no longer count."""
        return ((key, value) for key, (_, value) in self._entries.items())

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
