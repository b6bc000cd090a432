"""Tables as bytes: a rule is encoded when it comes, and a table is the bytes of its rules in a row.

Theory of operation
1. A message of protobuf may be joined from its fields in any order, and a repeated field from its items. So the bytes
   of a rule version or of a past are the same in every table.
2. The rules of a table lie in parts (`mesh.routing.ordered`). The next table has the same parts, but for those where a
   rule has changed. So the bytes of a part are kept as long as a table has the part, and a change costs the encoding of
   the changed rules and the joining of their parts.
3. The digest of a table is a sum over its fields (`TableDelta` in routing.proto), so each part has a sum of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from mesh.at_once import done_at_once
from mesh.routing import codec
from mesh.routing.clusters import UpstreamCluster
from mesh.routing.policies import KINDS
from mesh.routing.rules import RuleVersion
from mesh.routing.table import RoutingTable
from mesh.routing.visits import Past
from mesh.rpc import routing

Item = TypeVar("Item")
SMALL = 128
"""The least number that takes more than one byte as a varint."""
_SMALL = [bytes((number,)) for number in range(SMALL)]
DIGEST_BYTES = 16
REVISION_BYTES = 11
"""A tag, and a number of 64 bits as a varint."""


class TableBytes:
    """Encodes one table after another."""

    def __init__(self) -> None:
        self._clusters: _Joined[UpstreamCluster] = _Joined("clusters", codec.cluster_to_proto)
        self._versions: _Joined[RuleVersion] = _Joined("rule_versions", codec.version_to_proto)
        self._pasts: _Joined[Past] = _Joined("pasts", codec.past_to_proto)
        self._policies: dict[str, _Joined[Any]] = {kind.field: _Joined(kind.field, _as_it_is) for kind in KINDS}
        self._encoded: RoutingTable | None = None
        """The table to which the bytes of all parts belong."""

    def of(self, table: RoutingTable) -> bytes:
        """A routing.RoutingTable, as `codec.table_to_proto` would make it; past versions are behind the living ones."""
        return b"".join(self.pieces(table))

    def pieces(self, table: RoutingTable) -> list[bytes]:
        """The same in pieces, each a RoutingTable with some of the fields."""
        done_at_once(self.in_steps(table))
        return [_revision(table), *(encoded for each in self._sections for encoded in each.encoded)]

    def digest(self, table: RoutingTable) -> bytes:
        """The digest of the table."""
        done_at_once(self.in_steps(table))
        total = _hash(_revision(table)) + sum(each.digest for each in self._sections)
        return (total % (1 << 8 * DIGEST_BYTES)).to_bytes(DIGEST_BYTES, "big")

    def in_steps(self, table: RoutingTable) -> Generator[None, None, None]:
        """Encodes what is new in the table. `of` and `digest` take little time then, if no other table comes first."""
        if self._encoded is table:
            return
        self._encoded = None
        yield from self._clusters.change((tuple(table.clusters.values()),))
        yield from self._versions.change((*table.living_rules.ordered.parts, *table.topics.ended.parts))
        yield from self._pasts.change(table.topics.pasts.parts)
        for field_name, joined in self._policies.items():
            policy = getattr(table.policies, field_name)
            yield from joined.change(() if policy is None else ((policy,),))
        self._encoded = table

    @property
    def _sections(self) -> tuple[_Joined[Any], ...]:
        return self._clusters, self._versions, self._pasts, *self._policies.values()


class _Joined(Generic[Item]):
    """The bytes of parts of a table, each item encoded once."""

    def __init__(self, name: str, message_of: Callable[[Item], Message]) -> None:
        """`name`: of the field of RoutingTable."""
        self._name = name
        self._message_of = message_of
        self._parts: dict[int, tuple[Sequence[Item], bytes, int]] = {}
        """By the identity of each part, which the entry keeps alive: its bytes, and the sum of its hashes."""
        self._items: dict[int, tuple[Item, bytes]] = {}
        """By the identity of each item of these parts."""

    @property
    def encoded(self) -> list[bytes]:
        return [encoded for _, encoded, _ in self._parts.values()]

    @property
    def digest(self) -> int:
        return sum(hashes for _, _, hashes in self._parts.values())

    def change(self, parts: Sequence[Sequence[Item]]) -> Generator[None, None, None]:
        """Other parts, step by step. Parts and items that were here are not encoded again."""
        before, after = self._parts, {}
        come: dict[int, tuple[Item, bytes]] = {}
        for part in parts:
            known = before.get(id(part))
            if known is None:
                entries = [*map(self._entry, part)]
                come.update((id(item), (item, encoded)) for item, encoded in entries if item is not encoded)
                known = part, b"".join([encoded for _, encoded in entries]), sum(_hash(each) for _, each in entries)
                yield
            after[id(part)] = known
        for number in [number for number in before if number not in after]:
            for item in before.pop(number)[0]:
                self._items.pop(id(item), None)
            yield
        self._items |= come
        self._parts = after

    def _entry(self, item: Any) -> tuple[Any, bytes]:
        """An item of a part, and its bytes. A data plane's table keeps the bytes in place of the item (`packed`)."""
        if isinstance(item, bytes):
            return item, item
        known = self._items.get(id(item))
        if known is None:
            encoded = self._message_of(item).SerializeToString(deterministic=True)
            known = item, field(routing.RoutingTable, self._name, encoded)
        return known


def _as_it_is(policy: Message) -> Message:
    return policy


def _hash(encoded: bytes) -> int:
    return int.from_bytes(blake2b(encoded, digest_size=DIGEST_BYTES).digest(), "big")


def _revision(table: RoutingTable) -> bytes:
    return routing.RoutingTable(revision=table.revision).SerializeToString()


def field(message: type[Message], name: str, encoded: bytes) -> bytes:
    """The bytes of a message that has this field alone, which is a message with these bytes."""
    return tag_of(message, name) + varint(len(encoded)) + encoded


def tag_of(message: type[Message], name: str) -> bytes:
    """The bytes before the length of this field."""
    return _tag(message.DESCRIPTOR.fields_by_name[name].number)


@cache
def _tag(number: int) -> bytes:
    return varint(number << 3 | 2)


def revision_of(encoded: bytes) -> int:
    """The revision of a table as `TableBytes` wrote it, from its first REVISION_BYTES or more."""
    revision = 0
    if not encoded or encoded[0] != routing.RoutingTable.REVISION_FIELD_NUMBER << 3:
        return revision
    for place, byte in enumerate(encoded[1:REVISION_BYTES]):
        revision |= byte % SMALL << 7 * place
        if byte < SMALL:
            break
    return revision


def varint(number: int) -> bytes:
    """As protobuf's encoding says: seven bits a byte, the lowest first."""
    if number < SMALL:
        return _SMALL[number]
    groups = bytearray()
    while number >= SMALL:
        groups.append(number % SMALL + SMALL)
        number //= SMALL
    groups.append(number)
    return bytes(groups)
