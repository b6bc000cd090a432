"""Tables as bytes: a rule is encoded when it comes, and a table is the bytes of its rules in a row.

Theory of operation
1. A message of protobuf may be joined from its fields in any order, and a repeated field from its items. So the bytes
   of a rule version or of a past are the same in every table.
2. The rules of a table lie in parts (`mesh.routing.ordered`). The next table has the same parts, but for those where a
   rule has changed. So the bytes of a part are kept as long as a table has the part, and a change costs the encoding of
   the changed rules and the joining of their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from mesh.routing import RoutingTable, RuleVersion, codec
from mesh.routing.visits import Past
from mesh.rpc import routing

Item = TypeVar("Item")
SMALL = 128
"""The least number that takes more than one byte as a varint."""


class TableBytes:
    """Encodes one table after another."""

    def __init__(self) -> None:
        self._versions: _Joined[RuleVersion] = _Joined(
            lambda version: routing.RoutingTable(rule_versions=[codec.version_to_proto(version)]).SerializeToString()
        )
        self._pasts: _Joined[Past] = _Joined(
            lambda past: routing.RoutingTable(pasts=[codec.past_to_proto(past)]).SerializeToString()
        )

    def of(self, table: RoutingTable) -> bytes:
        """A routing.RoutingTable, as `codec.table_to_proto` would make it; past versions are behind the living ones."""
        clusters = map(codec.cluster_to_proto, table.clusters.values())
        rest = routing.RoutingTable(
            revision=table.revision,
            clusters=clusters,
            acl_policy=table.acl_policy,
            quota_policy=table.quota_policy,
            validation_policy=table.validation_policy,
        ).SerializeToString()
        versions = self._versions.of((*table.living_rules.ordered.parts, *table.topics.ended.parts))
        return b"".join((rest, *versions, *self._pasts.of(table.topics.pasts.parts)))


class _Joined(Generic[Item]):
    """The bytes of parts of a table, each item encoded once."""

    def __init__(self, encode: Callable[[Item], bytes]) -> None:
        self._encode = encode
        self._parts: dict[int, tuple[Sequence[Item], bytes]] = {}
        """By the identity of each part, which the entry keeps alive."""
        self._items: dict[int, tuple[Item, bytes]] = {}
        """By the identity of each item of these parts."""

    def of(self, parts: Iterable[Sequence[Item]]) -> Iterator[bytes]:
        """The bytes of each part. Parts and items that the last call had are not encoded again."""
        before, self._parts = self._parts, {}
        come: dict[int, tuple[Item, bytes]] = {}
        for part in parts:
            known = before.pop(id(part), None)
            if known is None:
                entries = [self._items.get(id(item)) or (item, self._encode(item)) for item in part]
                come |= {id(item): (item, encoded) for item, encoded in entries}
                known = part, b"".join(encoded for _, encoded in entries)
            self._parts[id(part)] = known
        for part, _ in before.values():
            for item in part:
                self._items.pop(id(item), None)
        self._items |= come
        return (encoded for _, encoded in self._parts.values())


def field(message: type[Message], name: str, encoded: bytes) -> bytes:
    """The bytes of a message that has this field alone, which is a message with these bytes."""
    number = message.DESCRIPTOR.fields_by_name[name].number
    return _varint(number << 3 | 2) + _varint(len(encoded)) + encoded


def _varint(number: int) -> bytes:
    """As protobuf's encoding says: seven bits a byte, the lowest first."""
    groups = bytearray()
    while number >= SMALL:
        groups.append(number % SMALL + SMALL)
        number //= SMALL
    groups.append(number)
    return bytes(groups)
