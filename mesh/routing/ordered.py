"""A sequence in the order of a key that never changes: the next one shares all parts with it but those that change.

Items lie in parts of a bounded length. A change of one item copies its part and the list of parts, so with thousands of
items the change costs as much as with a hundred.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, count, islice
from operator import is_, is_not
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

PART = 128
"""Items of a part that was just made; a part with more than twice as many is divided."""
MOST_PLACED = 1_000
"""With more changed items, all are sorted anew: that takes less time than to place each."""


class Ordered(Generic[Item]):
    """Items by a key that no two of them share."""

    __slots__ = ("_firsts", "_parts", "key")

    def __init__(self, items: Iterable[Item], key: Callable[[Item], Any]) -> None:
        ordered = sorted(items, key=key)
        self.key = key
        parts = [ordered[start : start + PART] for start in range(0, len(ordered), PART)]
        self._firsts = [key(part[0]) for part in parts]
        self._parts: list[list[Any]] = [[*map(self._kept, part)] for part in parts]

    def _kept(self, item: Item) -> Any:
        """An item as it lies in a part."""
        return item

    def read(self, kept: Iterable[Any]) -> Iterator[Item]:
        """Items that lie in parts."""
        return iter(kept)

    def _key_of(self, kept: Any) -> Any:
        """The key of an item that lies in a part."""
        return self.key(kept)

    def _of(self, items: Iterable[Item]) -> Ordered[Item]:
        """A sequence of this kind."""
        return Ordered(items, self.key)

    def changed(self, gone: Collection[Item], come: Collection[Item]) -> Ordered[Item]:
        """The sequence without the items that go, which are in it, and with those that come."""
        if not gone and not come:
            return self
        if len(gone) + len(come) > MOST_PLACED:
            going = set(map(self.key, gone))
            return self._of(chain((item for item in self if self.key(item) not in going), come))
        after = self._of(())
        after._parts, after._firsts = [*self._parts], [*self._firsts]
        for item in gone:
            number, place = after._locate(self.key(item))
            part = after._parts[number]
            after._put(number, [[*part[:place], *part[place + 1 :]]])
        for item in come:
            number, place = after._locate(self.key(item))
            part = after._parts[number] if after._parts else []
            grown = [*part[:place], self._kept(item), *part[place:]]
            after._put(number, [grown] if len(grown) <= 2 * PART else [grown[:PART], grown[PART:]])
        return after

    @property
    def parts(self) -> Sequence[Sequence[Any]]:
        """The items as they are kept, in their order, in parts. A part never changes: where no item does, the next one
        has the same."""
        return self._parts

    def find(self, key: Any) -> Item | None:
        """The item with this key."""
        number, place = self._locate(key)
        found = [*self.read(self._parts[number][place : place + 1])] if self._parts else []
        return found[0] if found and self.key(found[0]) == key else None

    def since(self, key: Any) -> Iterator[Item]:
        """The items from this key on."""
        number, place = self._locate(key)
        for part in islice(self._parts, number, None):
            yield from self.read(islice(part, place, None))
            place = 0

    def last_below(self, key: Any) -> Item | None:
        """The last item whose key is below this one."""
        number, place = self._locate(key)
        if place:
            return next(self.read(self._parts[number][place - 1 : place]))
        return next(self.read(self._parts[number - 1][-1:])) if number else None

    def place_of(self, item: Item) -> int:
        """The place of an item that is in the sequence, from 0."""
        number, place = self._locate(self.key(item))
        return sum(map(len, self._parts[:number])) + place

    def between(self, start: int, stop: int) -> list[Item]:
        """The items from the place `start` to before the place `stop`."""
        number = stop - max(0, start)
        return list(islice(self.behind(start), number)) if number > 0 else []

    def behind(self, start: int) -> Iterator[Item]:
        """The items from the place `start` on."""
        ends = [*accumulate(map(len, self._parts))]
        number = bisect_right(ends, max(0, start))
        place = max(0, start) - (ends[number - 1] if number else 0)
        return self.read(islice(chain.from_iterable(self._parts[number:]), place, None))

    def alike(self, other: Ordered[Item]) -> tuple[int, int]:
        """How many items at the start, and how many at the end, are the same objects in both; no item counts twice."""
        shorter = min(len(self), len(other))
        start = _alike(self._parts, other._parts, shorter, iter)
        return start, _alike(self._parts[::-1], other._parts[::-1], shorter - start, reversed)

    def same_as(self, other: Ordered[Item]) -> bool:
        """Whether both have the same items; those that both keep alike are compared as they are kept."""
        if type(self) is type(other):
            return [*chain.from_iterable(self._parts)] == [*chain.from_iterable(other._parts)]
        return [*self] == [*other]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Item]:
        return self.read(chain.from_iterable(self._parts))

    def _locate(self, key: Any) -> tuple[int, int]:
        """The number of the part, and the place in the part, of the first item whose key is not below this one."""
        number = max(0, bisect_right(self._firsts, key) - 1)
        return number, bisect_left(self._parts[number], key, key=self._key_of) if self._parts else 0

    def _put(self, number: int, parts: list[list[Any]]) -> None:
        """Puts parts in the place of a part."""
        parts = [part for part in parts if part]
        self._parts[number : number + 1] = parts
        self._firsts[number : number + 1] = [self._key_of(part[0]) for part in parts]


def _alike(ours: list[list[Any]], theirs: list[list[Any]], most: int, way: Callable[[list[Any]], Any]) -> int:
    """How many items, read this way, are the same objects, `most` at most; shared parts are not looked into."""
    shared = [*map(is_, ours, theirs), False].index(False)
    known = sum(map(len, ours[:shared]))
    if known >= most:
        return most
    mine, others = (chain.from_iterable(map(way, parts[shared:])) for parts in (ours, theirs))
    return min(most, known + next(compress(count(), map(is_not, mine, others)), most))
