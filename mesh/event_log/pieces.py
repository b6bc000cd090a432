"""Events in pieces: an event may be larger than a record of Kafka. No I/O.

Theory of operation
1. An event of at most PIECE_BYTES is one record: its value is the event, without a header.
2. A larger event is several records in a row. The header PIECE_HEADER of each record names the event's position, the
   first byte of the piece, and the size of the event.
3. A publisher that starts again repeats an event from its first piece. Two publishers may mix their pieces; pieces of
   one position are equal, whoever writes them. So a reader takes a piece that begins where the last piece ended, begins
   anew at a first piece, and drops every other piece as a repeat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

PIECE_BYTES: Final = 512 * 1024
"""Half of what a record may have by Kafka's default (`max.message.bytes`)."""
MOST_EVENT_BYTES: Final = 32 * 1024 * 1024
"""Bound of one event: half of a gRPC message's bound. 20,000 rules with names of 100 characters take 6 MiB."""
PIECE_HEADER: Final = "mesh-piece"

_PIECE = re.compile(rb"(\d{1,19})/(\d{1,9})/(\d{1,9})")

Headers = Sequence[tuple[str, str | bytes | None]]


class Record(NamedTuple):
    """One record of the log in Kafka."""

    key: bytes
    value: bytes
    headers: list[tuple[str, str | bytes | None]]


class DamagedPieceError(ValueError):
    """A record says that it is a piece of an event, and can't be one."""


def records_of(position: int, event: bytes) -> Iterator[Record]:
    """The records that carry this event."""
    key = str(position).encode()
    if len(event) <= PIECE_BYTES:
        yield Record(key, event, [])
        return
    for start in range(0, len(event), PIECE_BYTES):
        header = f"{position}/{start}/{len(event)}".encode()
        yield Record(key, event[start : start + PIECE_BYTES], [(PIECE_HEADER, header)])


class Assembler:
    """Puts the events of one reading together again."""

    def __init__(self) -> None:
        self._position = 0
        self._size = 0
        self._pieces: list[bytes] = []

    def take(self, value: bytes, headers: Headers) -> bytes | None:
        """The event that this record completes; None if pieces of the event are still to come."""
        header = next((text for name, text in headers if name == PIECE_HEADER), None)
        if header is None:
            return value
        position, start, size = _read(header, value)
        if start == 0:
            self._position, self._size, self._pieces = position, size, [value]
        elif self._pieces and (position, size, start) == (self._position, self._size, sum(map(len, self._pieces))):
            self._pieces.append(value)
        else:
            return None
        if sum(map(len, self._pieces)) < self._size:
            return None
        event, self._pieces = b"".join(self._pieces), []
        return event


def _read(header: str | bytes, value: bytes) -> tuple[int, int, int]:
    found = _PIECE.fullmatch(header) if isinstance(header, bytes) else None
    if found is None:
        raise DamagedPieceError(f"header {PIECE_HEADER} is {header[:60]!r}, not POSITION/FIRST-BYTE/BYTES")
    position, start, size = (int(number) for number in found.groups())
    if size > MOST_EVENT_BYTES or not value or start + len(value) > size:
        raise DamagedPieceError(
            f"a piece of event {position} has {len(value)} bytes from byte {start} on, of {size}; an event has at most "
            f"{MOST_EVENT_BYTES}"
        )
    return position, start, size
