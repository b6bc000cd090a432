"""The entries of a data plane's table as the bytes that a router has sent: an entry is read when a look-up needs it.

A gateway reads each entry once, to check it, and keeps no object of it. So 100,000 entries are no work for Python's
collector of cycles, nor when a whole table goes, and they take a third of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from mesh.routing import codec
from mesh.routing.ordered import PART, Ordered
from mesh.routing.rules import RuleVersion
from mesh.routing.table_bytes import tag_of, varint
from mesh.routing.visits import Past
from mesh.rpc import routing

Item = TypeVar("Item")


class Form(Generic[Item]):
    """How entries of one field of RoutingTable become bytes, and are read again."""

    def __init__(self, name: str, message_of: Callable[[Item], Message], item_of: Callable[[Any], Item]) -> None:
        self._name = name
        self._tag = tag_of(routing.RoutingTable, name)
        self._message_of = message_of
        self._item_of = item_of

    def framed(self, message: Message) -> bytes:
        """The field with this entry: a RoutingTable of one entry."""
        encoded = message.SerializeToString(deterministic=True)
        return self._tag + varint(len(encoded)) + encoded

    def kept(self, item: Item) -> bytes:
        return self.framed(self._message_of(item))

    def read(self, kept: bytes) -> Item:
        return self._item_of(getattr(routing.RoutingTable.FromString(kept), self._name)[0])


VERSIONS: Form[RuleVersion] = Form("rule_versions", codec.version_to_proto, codec.version_from_proto)
PASTS: Form[Past] = Form("pasts", codec.past_to_proto, codec.past_from_proto)


class Packed(Ordered[Item]):
    """Items of which only the bytes are kept."""

    __slots__ = ("_form",)

    def __init__(self, items: Iterable[Item], key: Callable[[Item], Any], form: Form[Item]) -> None:
        self._form = form
        super().__init__(items, key)

    def read(self, kept: Iterable[bytes]) -> Iterator[Item]:
        return map(self._form.read, kept)

    def _kept(self, item: Item) -> bytes:
        return self._form.kept(item)

    def _key_of(self, kept: bytes) -> Any:
        return self.key(self._form.read(kept))

    def _of(self, items: Iterable[Item]) -> Packed[Item]:
        return Packed(items, self.key, self._form)

    def _resting_on(self, parts: list[list[bytes]], firsts: list[Any]) -> Packed[Item]:
        packed = self._of(())
        packed._parts, packed._firsts = parts, firsts
        return packed


class Packing(Generic[Item]):
    """Items that come one by one, with their bytes: in their order, unless a writer of another kind has sent them."""

    def __init__(self, key: Callable[[Item], Any], form: Form[Item]) -> None:
        self._empty: Packed[Item] = Packed((), key, form)
        self._parts: list[list[bytes]] = []
        self._firsts: list[Any] = []
        self._last: Any = None
        self._is_in_order = True

    def add(self, item: Item, kept: bytes) -> None:
        key = self._empty.key(item)
        self._is_in_order = self._is_in_order and (self._last is None or self._last < key)
        self._last = key
        if not self._parts or len(self._parts[-1]) == PART:
            self._parts.append([])
            self._firsts.append(key)
        self._parts[-1].append(kept)

    def packed(self) -> Packed[Item]:
        """All items. This takes long if they did not come in their order."""
        packed = self._empty._resting_on(self._parts, self._firsts)
        return packed if self._is_in_order else self._empty._of(packed)
