"""Fetch requests to one broker as bytes: the same content as the messages of `BrokerFetches`."""

from struct import Struct as Packing
from typing import Final

from services.gateway.requests.records.broker_fetches import NO_EPOCH, SESSIONS_SINCE, BrokerRequest
from services.gateway.requests.records.fetch_routes import Route
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import (
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
RACKS_SINCE: Final = 11
_NO_REPLICA: Final = -1
_MOST_IN_A_BYTE: Final = 0x7F
"""A compact count below this takes one byte."""
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


def written_fetch(version: int, request: BrokerRequest, routes: dict[str, Route]) -> bytes:
    """The body of a request that forgets no partition; `routes`: those of its topics, by their names."""
    flexible, limits = version >= _FLEXIBLE, request.limits
    entries: dict[str, list[bytes]] = {}
    for (name, partition), (offset, max_bytes) in request.changed.items():
        entry = entry_of(version, partition, offset, max_bytes)
        if name in entries:
            entries[name].append(entry)
        else:
            entries[name] = [entry]
    out = bytearray(
        _HEAD.pack(_NO_REPLICA, limits.max_wait_ms, limits.min_bytes, limits.max_bytes, request.isolation_level)
    )
    if version >= SESSIONS_SINCE:
        out += _SESSION.pack(request.session_id, request.epoch)
    _count_to(out, flexible, len(entries))
    for name, parts in entries.items():
        route = routes[name]
        out += route.compact if flexible else route.plain
        _count_to(out, flexible, len(parts))
        for part in parts:
            out += part
        if flexible:
            out.append(_NO_TAGS)
    if version >= SESSIONS_SINCE:
        _count_to(out, flexible, 0)
    if version >= RACKS_SINCE:
        rack_id = limits.rack_id
        if rack_id or not flexible:
            (write_compact_string if flexible else write_string)(out, rack_id, "Fetch.rack_id")
        else:
            out.append(1)
    if flexible:
        out.append(_NO_TAGS)
    return bytes(out)


def _count_to(out: bytearray, flexible: bool, count: int) -> None:
    if not flexible:
        write_count(out, count, "Fetch")
    elif count < _MOST_IN_A_BYTE:
        out.append(count + 1)
    else:
        write_compact_count(out, count, "Fetch")
