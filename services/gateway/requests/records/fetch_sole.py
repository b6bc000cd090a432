"""Polls about one partition that read on: from one to the next only the offset changes, and the session's epoch.

Most consumers ask so as long as they get records. What they ask and what their broker is asked is the same but for
these numbers, so neither is read or written anew.
"""

from dataclasses import dataclass
from typing import Final

from services.gateway.requests.records.broker_fetches import Limits
from services.gateway.requests.records.fetch_sessions import Slot
from services.gateway.requests.records.fetch_writing import offset_in_entry
from services.gateway.wire.primitives import INT32, INT64
from services.gateway.wire.scanner import FetchRequestScan

_EPOCH_AT: Final = 17
"""The session's epoch in a request, counted from its wait."""


@dataclass(frozen=True, slots=True)
class SolePoll:
    """What such polls of one client have in common."""

    slot: Slot
    max_bytes: int
    limits: Limits
    isolation_level: int
    start: int
    """Where a request begins to be the same: behind its correlation id."""
    epoch_at: int
    offset_at: int
    before: bytes
    """What stands before the epoch ..."""
    between: bytes
    """... between it and the offset ..."""
    after: bytes
    """... and behind that."""
    asked: bytes
    """A request to the broker, behind its correlation id ..."""
    asked_offset_at: int
    """... and where the offset stands in it."""

    def read(self, frame: memoryview) -> tuple[int, int] | None:
        """The epoch and the offset in this poll, if it is one of them."""
        epoch_at, offset_at = self.epoch_at, self.offset_at
        if (
            bytes(frame[self.start : epoch_at]) != self.before
            or bytes(frame[epoch_at + INT32.size : offset_at]) != self.between
            or bytes(frame[offset_at + INT64.size :]) != self.after
        ):
            return None
        return INT32.unpack_from(frame, epoch_at)[0], INT64.unpack_from(frame, offset_at)[0]

    def asks(self, offset: int) -> bytes:
        """The request to the broker."""
        at = self.asked_offset_at
        return b"".join((self.asked[:at], INT64.pack(offset), self.asked[at + INT64.size :]))


def epoch_at(scan: FetchRequestScan) -> int:
    """Where the session's epoch stands in a request with sessions."""
    return scan.waits_at + _EPOCH_AT


def sole_poll_of(
    frame: memoryview,
    version: int,
    scan: FetchRequestScan,
    start: int,
    slot: Slot,
    limits: Limits,
    asked: bytes,
    asked_offset_at: int,
) -> SolePoll | None:
    """Of the poll in `frame`, by which the broker was `asked`; None if it does not name its partition."""
    if len(scan.topics) != 1 or len(scan.topics[0].partitions) != 1:
        return None
    (part,) = scan.topics[0].partitions
    at = epoch_at(scan)
    offset_at = part.start + offset_in_entry(version)
    return SolePoll(
        slot,
        part.max_bytes,
        limits,
        scan.isolation_level,
        start,
        at,
        offset_at,
        bytes(frame[start:at]),
        bytes(frame[at + INT32.size : offset_at]),
        bytes(frame[offset_at + INT64.size :]),
        asked,
        asked_offset_at,
    )
