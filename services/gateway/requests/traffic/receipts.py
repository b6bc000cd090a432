"""Receipts of clients: the offsets of a Fetch's or ShareFetch's answer, by who was sent them.

Theory of operation
1. "Sent" means: the gateway gave the records to the client's connection. No gateway can know whether the
   client received them. Records of aborted transactions are sent too; a `read_committed` client skips them.
2. An offset is that of a batch that was sent as a whole: brokers send whole batches, also if a client asks for a record
   in the middle of one. Batches older than version 2 do not show their last offset, and get no receipt.
3. The group of a client is known if the clients of its principal, client.id and address have named one group here. A
   gateway that serves a client's Fetch, and not its group, does not know the group.
"""

import math
from dataclasses import dataclass, field

from mesh.traffic.receipts import MOST_EXACT_RANGES, MOST_RANGES, Reading, Receipts, Sent
from services.gateway.requests.bounded_cache import BoundedCache
from services.gateway.requests.topic_patterns import TopicPatterns
from services.gateway.wire.batches import Span

READERS_REMEMBERED = 20_000

Reader = tuple[str, str, str]
"""Principal, client.id, address."""


class Groups:
    """The groups of each reader, as far as this gateway has heard of them."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named: BoundedCache[Reader, dict[str, set[int]]] = BoundedCache(READERS_REMEMBERED, math.inf)
        """By group the open connections that have named it; none of the last group of a reader that is gone."""

    def note(self, reader: Reader, group: str, connection: int) -> None:
        """A client names its group."""
        named = self._named.get(reader, 0.0)
        if named is None:
            named = {}
            self._named.put(reader, named, 0.0)
        elif group not in named:
            for other in [each for each, connections in named.items() if not connections]:
                del named[other]
        named.setdefault(group, set()).add(connection)

    def left(self, reader: Reader, connection: int) -> None:
        """A connection of the client has ended."""
        for connections in (self._named.get(reader, 0.0) or {}).values():
            connections.discard(connection)

    def of(self, reader: Reader) -> str:
        """Its group; empty if it has named none, or several."""
        named = self._named.get(reader, 0.0) or {}
        found = named if len(named) < 2 else [each for each, connections in named.items() if connections]
        return next(iter(found)) if len(found) == 1 else ""


@dataclass(frozen=True, slots=True)
class ClientReceipts:
    """The receipts of all clients of a gateway."""

    receipts: Receipts
    topics: TopicPatterns
    """Topics that have receipts, ..."""
    exact: TopicPatterns
    """... and those that ask for exact ones."""
    groups: Groups = field(default_factory=Groups)

    def of(self, reading: Reading) -> Sent:
        """The offsets of this reading in the interval that goes on."""
        return self.receipts.of(reading, MOST_EXACT_RANGES if reading.topic in self.exact else MOST_RANGES)


def add(sent: Sent, span: Span, until: int, *, is_certain: bool = True) -> None:
    """A client was sent these batches, and nothing from the offset `until` on.

    Not `is_certain`: the answer may have been cut off on its way.
    """
    if is_certain:
        sent.add(span.first, span.end)
    else:
        sent.add_perhaps(span.first, span.end)
    if not span.is_whole:
        sent.add_perhaps(span.end, until)
