"""A recording: the frames between clients and an endpoint, in the order of time.

The file, version 1. Numbers are unsigned varints, seven bits to a byte, lowest first.

- `"KMREC" 0x01`, then the rest as one stream of xz.
- `size, JSON`: the description of the recording: client, endpoint, Kafka's version, ...
- `microseconds since the event before, kind, connection, size, bytes` for each event, until the end of the stream.

The bytes by kind of event:

- 0 opened: the address that the client dialled, HOST:PORT.
- 1 request: a frame of the client, without its four bytes of size.
- 2 answer: a frame of the endpoint, without its four bytes of size.
- 3 client ended, 4 endpoint ended: none.

A recording holds all data of the connections, passwords and records included.
"""

from __future__ import annotations

import json
import lzma
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from judge.protocol.schema import ProtocolError, Reader, varint

MAGIC = b"KMREC"
VERSION = 1
MAX_BYTES = 256 * 1024 * 1024
"""Bytes of a recording in memory."""


class RecordingError(Exception):
    """A file that is no recording, or of a version that this replayer does not know."""


class Kind(IntEnum):
    OPENED = 0
    REQUEST = 1
    ANSWER = 2
    CLIENT_ENDED = 3
    ENDPOINT_ENDED = 4


@dataclass(frozen=True, slots=True)
class Event:
    kind: Kind
    connection: int
    data: bytes = b""
    after_us: int = 0
    """Microseconds since the event before."""


@dataclass(frozen=True, slots=True)
class Recording:
    about: Mapping[str, Any]
    events: Sequence[Event]

    def write(self, path: Path) -> None:
        about = json.dumps(self.about, sort_keys=True).encode()
        parts = [varint(len(about)), about]
        for event in self.events:
            parts += (varint(event.after_us), varint(event.kind), varint(event.connection))
            parts += (varint(len(event.data)), event.data)
        packed = lzma.compress(b"".join(parts), preset=9 | lzma.PRESET_EXTREME)
        path.write_bytes(MAGIC + bytes([VERSION]) + packed)


def read(path: Path) -> Recording:
    data = path.read_bytes()
    if data[: len(MAGIC)] != MAGIC:
        raise RecordingError(f"{path} is no recording: it does not begin with {MAGIC.decode()}")
    if data[len(MAGIC)] != VERSION:
        raise RecordingError(f"{path} has format {data[len(MAGIC)]}; this replayer reads format {VERSION}")
    unpacker = lzma.LZMADecompressor()
    try:
        reader = Reader(unpacker.decompress(data[len(MAGIC) + 1 :], MAX_BYTES))
        if not unpacker.eof:
            raise RecordingError(f"{path} was cut short, or holds more than {MAX_BYTES} bytes")
        about = json.loads(reader.take(reader.varint()))
        events = []
        while reader.at < len(reader.data):
            after_us, kind, connection = reader.varint(), Kind(reader.varint()), reader.varint()
            events.append(Event(kind, connection, reader.take(reader.varint()), after_us))
    except (lzma.LZMAError, ProtocolError, ValueError) as error:
        raise RecordingError(f"{path} is damaged: {error}") from error
    return Recording(about, events)


@dataclass(slots=True)
class Tape:
    """Takes events of many connections as they happen, up to `MAX_BYTES`."""

    events: list[Event] = field(default_factory=list)
    is_full: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _connections: int = 0
    _last: float = field(default_factory=time.monotonic)
    _bytes: int = 0

    def opened(self, to: str) -> int:
        """The number of the new connection."""
        with self._lock:
            self._connections += 1
            self._add(Kind.OPENED, self._connections, to.encode())
            return self._connections

    def add(self, kind: Kind, connection: int, data: bytes = b"") -> None:
        with self._lock:
            self._add(kind, connection, data)

    def recording(self, about: Mapping[str, Any]) -> Recording:
        """The events recorded so far. Raises RecordingError if they did not fit."""
        with self._lock:
            if self.is_full:
                raise RecordingError(f"more than {MAX_BYTES} bytes went by: record less at once")
            return Recording(about, tuple(self.events))

    def _add(self, kind: Kind, connection: int, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > MAX_BYTES:
            self.is_full = True
            return
        now = time.monotonic()
        self.events.append(Event(kind, connection, data, int((now - self._last) * 1e6)))
        self._last = now
