"""Records of a run: a unique number, padding, and a checksum over both, so that no change stays unseen."""

from __future__ import annotations

import random
import zlib

from judge.anomalies.writes import ALTERED

MOST_PADDING = 400


def record(value: int) -> bytes:
    padding = random.Random(value).randbytes(value * 7919 % MOST_PADDING).hex()
    body = f"judge {value} {padding}".encode()
    return body + b" %08x" % zlib.crc32(body)


def value_of(data: bytes | None) -> int:
    """The number, or `ALTERED`."""
    body, _, checksum = (data or b"").rpartition(b" ")
    if b"%08x" % zlib.crc32(body) != checksum:
        return ALTERED
    return int(body.split(b" ", 2)[1])
