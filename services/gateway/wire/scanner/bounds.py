"""What the scans of Produce and Fetch share."""

from struct import Struct as Packing

from services.gateway.wire.primitives import Buffer, WireError, truncated

IDS_SINCE = 13
"""From here on, Produce and Fetch name topics by id."""

MAX_ENTRIES = 200_000
"""Topics and partitions in one Produce or Fetch: more than a broker can host, and some 50 MB of notes."""

TWO_INT32 = Packing(">ii")


def take(left: int, count: int, field: str, at: int) -> int:
    """How many entries may still come after `count` of them."""
    if count > left:
        raise WireError(field, at, f"{count} entries are more than one message may hold (at most {MAX_ENTRIES})")
    return left - count


def read_topic_id(buffer: Buffer, at: int, end: int, field: str) -> tuple[bytes, int]:
    if end - at < 16:
        raise truncated(field, at, 16, end)
    return bytes(buffer[at : at + 16]), at + 16


def lying(field: str, offset: int, length: int, left: int) -> WireError:
    return WireError(field, offset, f"length {length}, {left} bytes left")


def finished(what: str, at: int, end: int) -> None:
    if at != end:
        raise WireError(what, at, f"{end - at} bytes follow the end of the message")
