"""Receipts of clients: the offsets of a Fetch's or ShareFetch's answer, by who was sent them.

Theory of operation
1. "Sent" means: the gateway gave the records to the client's connection. Whether the client received them, or looked at
   them, no gateway can know. Records of aborted transactions are sent too; a `read_committed` client skips them.
2. An offset is that of a batch that was sent as a whole: brokers send whole batches, also if a client asks for a record
   in the middle of one. Batches older than version 2 do not show their last offset, and get no receipt.
3. The group of a client is known if clients of its principal, client.id and address have named one group here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from mesh.traffic.receipts import MOST_EXACT_RANGES, MOST_RANGES, Range, Reading, Receipts, Sent
from services.gateway.requests.bounded_cache import BoundedCache
from services.gateway.requests.topic_patterns import TopicPatterns
from services.gateway.wire.batches import Span

READERS_REMEMBERED = 20_000
OTHER_GROUP_S = 300.0
"""A client that has named another group in this time is a member of both, or there are two such clients."""

Reader = tuple[str, str, str]
"""Principal, client.id, address."""


class Groups:
    """The group of each reader, as far as this gateway has heard of it; empty for readers of several groups."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: BoundedCache[Reader, tuple[str, float]] = BoundedCache(READERS_REMEMBERED, math.inf)

    def note(self, reader: Reader, group: str, now: float) -> None:
        """A client names its group."""
        seen = self._seen.get(reader, now)
        if seen is not None and seen[0] != group and now - seen[1] < OTHER_GROUP_S:
            group = ""
        self._seen.put(reader, (group, now), now)

    def of(self, reader: Reader, now: float) -> str:
        """Its group; empty if none is known."""
        seen = self._seen.get(reader, now)
        return "" if seen is None else seen[0]


@dataclass(frozen=True, slots=True)
class ClientReceipts:
    """The receipts of all clients of a gateway."""

    receipts: Receipts
    topics: TopicPatterns
    """Topics that have receipts, ..."""
    exact: TopicPatterns
    """... and those that ask for exact ones."""
    groups: Groups = field(default_factory=Groups)

    def sent(self, reading: Reading, span: Span, until: int, *, is_certain: bool = True) -> None:
        """A client was sent these batches, and nothing from the offset `until` on.

        Not `is_certain`: the answer may have been cut off on its way.
        """
        if span.first < 0:
            return
        sent = self._of(reading)
        if is_certain:
            sent.add(span.first, span.end)
        else:
            sent.add_perhaps(span.first, span.end)
        if not span.is_whole:
            sent.add_perhaps(span.end, until)

    def acquired(self, reading: Reading, ranges: Iterable[Range]) -> None:
        """A member of a share group was sent these offsets."""
        sent = self._of(reading)
        for first, end in ranges:
            sent.add(first, end)

    def _of(self, reading: Reading) -> Sent:
        return self.receipts.of(reading, MOST_EXACT_RANGES if reading.topic in self.exact else MOST_RANGES)
