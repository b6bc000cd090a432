"""Fetch requests to one broker as bytes: the same content as the messages of `BrokerFetches`."""

from collections.abc import Mapping, Sequence
from struct import Struct as Packing
from typing import Final

from services.gateway.requests.records.broker_fetches import NO_EPOCH, Limits
from services.gateway.requests.records.fetch_sessions import FINAL_EPOCH, NO_SESSION
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import (
    INT32,
    write_compact_count,
    write_compact_string,
    write_count,
    write_string,
)

_FLEXIBLE: Final = flexible_since(ApiKey.FETCH) or 0
_HEAD: Final = Packing(">iiiib")
"""Replica, longest wait, least bytes, most bytes, isolation level ..."""
_SESSION: Final = Packing(">ii")
"""... and session (from version 7 on)."""
_NO_REPLICA: Final = -1
_NO_TAGS: Final = 0
_ENTRY_4: Final = Packing(">iqi")
"""Partition, offset, most bytes; before the last ..."""
_ENTRY_5: Final = Packing(">iqqi")
"""... the start of a follower's log; before the offset ..."""
_ENTRY_9: Final = Packing(">iiqqi")
"""... the leader's epoch; behind it ..."""
_ENTRY_12: Final = Packing(">iiqiqib")
"""... the epoch of the records that were read last; and tags."""


def entry_of(version: int, partition: int, offset: int, max_bytes: int) -> bytes:
    """The entry of one partition, in version 4 to 12."""
    if version >= 12:
        return _ENTRY_12.pack(partition, NO_EPOCH, offset, NO_EPOCH, -1, max_bytes, _NO_TAGS)
    if version >= 9:
        return _ENTRY_9.pack(partition, NO_EPOCH, offset, -1, max_bytes)
    if version >= 5:
        return _ENTRY_5.pack(partition, offset, -1, max_bytes)
    return _ENTRY_4.pack(partition, offset, max_bytes)


def offset_in_entry(version: int) -> int:
    """The place of the offset in an entry: behind the partition, and the leader's epoch (from version 9 on)."""
    return INT32.size * (2 if version >= 9 else 1)


def sole_offset_at(version: int, name: bytes) -> int:
    """The place of the offset in the body of a request about one partition of a topic with this written name."""
    count_bytes = 1 if version >= _FLEXIBLE else INT32.size
    of_session = _SESSION.size if version >= 7 else 0
    return _HEAD.size + of_session + count_bytes + len(name) + count_bytes + offset_in_entry(version)


def name_of(version: int, topic: str) -> bytes:
    """A topic's name as it is written before its entries."""
    out = bytearray()
    (write_compact_string if version >= _FLEXIBLE else write_string)(out, topic, "Fetch.topic")
    return bytes(out)


def written_fetch(
    version: int,
    limits: Limits,
    isolation_level: int,
    entries: Mapping[bytes, Sequence[bytes]],
    session_id: int = NO_SESSION,
    epoch: int = FINAL_EPOCH,
) -> bytes:
    """The body of a request that forgets no partition; `entries` by the names of topics, as `name_of` writes them."""
    flexible = version >= _FLEXIBLE
    count_to = write_compact_count if flexible else write_count
    out = bytearray(_HEAD.pack(_NO_REPLICA, limits.max_wait_ms, limits.min_bytes, limits.max_bytes, isolation_level))
    if version >= 7:
        out += _SESSION.pack(session_id, epoch)
    count_to(out, len(entries), "Fetch.topics")
    for name, parts in entries.items():
        out += name
        count_to(out, len(parts), "Fetch.partitions")
        for part in parts:
            out += part
        if flexible:
            out.append(_NO_TAGS)
    if version >= 7:
        count_to(out, 0, "Fetch.forgotten_topics")
    if version >= 11:
        (write_compact_string if flexible else write_string)(out, limits.rack_id, "Fetch.rack_id")
    if flexible:
        out.append(_NO_TAGS)
    return bytes(out)
