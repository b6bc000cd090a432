"""The memory of one gateway process about members of share groups, between their heartbeats.

A client names its topics only when they change, and gets its partitions only when these change. The gateway needs the
topics with each heartbeat (`share_branches`). It remembers them for the connection on which the heartbeats come: a
client that comes on another connection may have named other topics at another gateway meanwhile.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.gateway.requests.groups.share_sessions import Member

SHARE_MEMBER_ITEMS_REMEMBERED = 500_000
"""Topics and partitions of all members together: about 60 MB at the most."""

Assigned = Mapping[str, Sequence[int]]
"""Partitions by topic."""


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member as its last heartbeat has shown it."""

    connection: int
    """The number of the client's connection."""
    topics: tuple[str, ...]
    """The topics that the member subscribes to, on all clusters."""
    parts: Mapping[str, Assigned] = field(default_factory=dict)
    """Cluster -> the assignment there, as far as the cluster has sent one."""

    @property
    def items(self) -> int:
        return 1 + len(self.topics) + sum(len(given) for part in self.parts.values() for given in part.values())


class ShareMembers:
    """Members that were seen last stay; the size is counted in topics and partitions."""

    __slots__ = ("_items", "_members", "capacity")

    def __init__(self, capacity: int = SHARE_MEMBER_ITEMS_REMEMBERED) -> None:
        self.capacity = capacity
        self._members: OrderedDict[Member, ShareMember] = OrderedDict()
        self._items = 0

    def get(self, member: Member, connection: int) -> ShareMember | None:
        """The member, if its last heartbeat came on this connection."""
        known = self._members.get(member)
        return known if known is not None and known.connection == connection else None

    def put(self, member: Member, known: ShareMember) -> None:
        self.drop(member)
        self._members[member] = known
        self._items += known.items
        while self._items > self.capacity:
            _, oldest = self._members.popitem(last=False)
            self._items -= oldest.items

    def drop(self, member: Member) -> None:
        known = self._members.pop(member, None)
        if known is not None:
            self._items -= known.items

    def __len__(self) -> int:
        return self._items
