"""Goes through a message, leaf by leaf, with the specification of each leaf and the structs around it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from judge.protocol.schema import Message
from judge.replay.specification import Field

TOPICS = ("Topic", "TopicName", "Name", "TopicId")
PARTITIONS = ("PartitionIndex", "Partition", "Index")
IDENTITY = frozenset(
    {*TOPICS, *PARTITIONS, "GroupId", "ApiKey", "ResourceType", "ResourceName", "TransactionalId", "ProtocolType"}
)
"""Fields that identify an element of an array, in addition to the map keys of the specifications."""
MINTED_KEYS = frozenset({"NodeId", "BrokerId", "MemberId", "ProducerId"})
"""Keys that endpoints choose: such a key identifies an element only if the key itself is known."""


@dataclass(frozen=True, slots=True)
class Leaf:
    field: Field
    owner: Message
    index: int
    """In an array of plain values; -1: the field is no array."""
    around: tuple[Message, ...]
    """The structs that it is part of, from the message to `owner`."""

    @property
    def value(self) -> Any:
        found = self.owner[self.field.name]
        return found if self.index < 0 else found[self.index]

    def put(self, value: Any) -> None:
        if self.index < 0:
            self.owner[self.field.name] = value
        else:
            self.owner[self.field.name][self.index] = value

    def nearest(self, *names: str) -> Any:
        """The value of the field with one of these names, in the innermost struct that has such a value."""
        for struct in reversed(self.around):
            for name in names:
                if struct.get(name) not in (None, "", bytes(16)):
                    return struct[name]
        return None


def leaves(fields: Sequence[Field], message: Message, around: tuple[Message, ...] = ()) -> Iterator[Leaf]:
    around = (*around, message)
    for field in fields:
        value = message.get(field.name)
        if value is None:
            continue
        for index, element in enumerate(value) if field.is_array else ((-1, value),):
            if field.parts:
                yield from leaves(field.parts, element, around)
            else:
                yield Leaf(field, message, index, around)


def pairs(
    left: Sequence[Any], right: Sequence[Any], left_key: Callable[[Any], object], right_key: Callable[[Any], object]
) -> Iterator[tuple[Any, Any]]:
    """Each element with the other side's element of the same key; None where there is none.

    Elements without a key meet in the order in which they stand.
    """
    waiting: defaultdict[object, deque[Any]] = defaultdict(deque)
    for element in right:
        waiting[right_key(element)].append(element)
    for element in left:
        same = waiting[left_key(element)]
        yield element, same.popleft() if same else None
    for rest in waiting.values():
        yield from ((None, element) for element in rest)


def key_of(element: Message, fields: Sequence[Field], minted: Callable[[Field, Any], Any]) -> object:
    """The key of an element of an array; None: it has none. `minted` replaces a value that the endpoint generated."""
    found = []
    for field in fields:
        value = element.get(field.name)
        if field.is_array or field.parts or not (field.is_key or field.name in IDENTITY | MINTED_KEYS):
            continue
        if field.name in MINTED_KEYS or field.kind == "uuid":
            value = minted(field, value)
        if value not in (None, "", bytes(16)):
            found.append((field.name, value))
    if any(name in TOPICS and isinstance(value, str) for name, value in found):
        found = [(name, value) for name, value in found if name != "TopicId"]
    return tuple(found) or None
