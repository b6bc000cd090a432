"""Fetch requests to one broker as bytes: the same content as the messages of `BrokerFetches`."""

from typing import Final

from services.gateway.requests.records.broker_fetches import NO_EPOCH, SESSIONS_SINCE, BrokerRequest
from services.gateway.requests.records.fetch_routes import Route
from services.gateway.requests.records.fetch_sessions import Position
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.frames import SIZE_BYTES
from services.gateway.wire.primitives import write_compact_string, write_string
from services.gateway.wire.scanner.walks import octets

_FLEXIBLE: Final = flexible_since(ApiKey.FETCH) or 0
_RACKS_SINCE: Final = 11
_NO_REPLICA: Final = -1
_UNKNOWN: Final = -1
_NO_TAGS: Final = 0
_NO_RACK: Final = b"\x01"
_NO_RACK_BEFORE: Final = bytes(2)
"""No rack, as version 11 writes it."""


def written_fetch(header: bytes, version: int, request: BrokerRequest, routes: dict[str, Route]) -> bytearray:
    """A request that forgets no partition, in version 4 to 12, from its size prefix on; it still lacks its number.

    `header`: size prefix and header; `routes`: those of its topics, by their names.
    """
    flexible, limits = version >= _FLEXIBLE, request.limits
    out, entries = bytearray(header), _entries_of(version, request)
    at = octets.extend(out, 25 if version >= SESSIONS_SINCE else 17)
    octets.set32(out, at, _NO_REPLICA)
    octets.set32(out, at + 4, limits.max_wait_ms)
    octets.set32(out, at + 8, limits.min_bytes)
    octets.set32(out, at + 12, limits.max_bytes)
    out[at + 16] = request.isolation_level
    if version >= SESSIONS_SINCE:
        octets.set32(out, at + 17, request.session_id)
        octets.set32(out, at + 21, request.epoch)
    octets.add_count(out, flexible, len(entries))
    size = _entry_bytes(version)
    for name, of_topic in entries.items():
        route = routes[name]
        out += route.compact if flexible else route.plain
        octets.add_count(out, flexible, len(of_topic) // size)
        out += of_topic
        if flexible:
            out.append(_NO_TAGS)
    if version >= SESSIONS_SINCE:
        octets.add_count(out, flexible, 0)
    if version >= _RACKS_SINCE:
        if not limits.rack_id:
            out += _NO_RACK if flexible else _NO_RACK_BEFORE
        else:
            (write_compact_string if flexible else write_string)(out, limits.rack_id, "Fetch.rack_id")
    if flexible:
        out.append(_NO_TAGS)
    octets.set32(out, 0, len(out) - SIZE_BYTES)
    return out


def _entries_of(version: int, request: BrokerRequest) -> dict[str, bytearray]:
    """The entries of the partitions, by topic."""
    entries: dict[str, bytearray] = {}
    for (name, partition), position in request.changed.items():
        out = entries.get(name)
        if out is None:
            out = entries[name] = bytearray()
        _write_entry(out, version, partition, position)
    return entries


def _write_entry(out: bytearray, version: int, partition: int, position: Position) -> None:
    at = octets.extend(out, _entry_bytes(version))
    octets.set32(out, at, partition)
    if version >= 9:
        at += 4
        octets.set32(out, at, NO_EPOCH)
    octets.set64(out, at + 4, position.offset)
    at += 12
    if version >= _FLEXIBLE:
        octets.set32(out, at, NO_EPOCH)  # of the records that were read last
        at += 4
    if version >= 5:
        octets.set64(out, at, _UNKNOWN)  # the start of a follower's log
        at += 8
    octets.set32(out, at, position.max_bytes)
    if version >= _FLEXIBLE:
        out[at + 4] = _NO_TAGS


def _entry_bytes(version: int) -> int:
    return 33 if version >= _FLEXIBLE else 28 if version >= 9 else 24 if version >= 5 else 16
