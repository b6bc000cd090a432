"""Polls of one partition that read on: only the offset and the session's epoch change from one to the next.

Most consumers poll in this way as long as they get records. The client's request and the request to the broker stay the
same but for these numbers, so neither is read or written anew.
"""

from dataclasses import dataclass
from typing import Final

from services.gateway.requests.records.broker_fetches import Limits
from services.gateway.requests.records.fetch_sessions import Slot
from services.gateway.requests.records.fetch_writing import offset_in_entry
from services.gateway.wire.primitives import INT32, INT64
from services.gateway.wire.scanner import FetchRequestScan

_EPOCH_AT: Final = 17
"""The offset of the session's epoch in a request, counted from its wait."""


@dataclass(frozen=True, slots=True)
class SolePoll:
    """The part that such polls of one client have in common."""

    slot: Slot
    max_bytes: int
    limits: Limits
    isolation_level: int
    start: int
    """The offset where requests begin to be the same: behind the correlation id."""
    epoch_at: int
    offset_at: int
    before: bytes
    """The bytes before the epoch ..."""
    between: bytes
    """... between the epoch and the offset ..."""
    after: bytes
    """... and behind the offset."""
    asked: bytes
    """A request to the broker, behind its correlation id ..."""
    asked_offset_at: int
    """... and the place of the offset in the request."""

    def read(self, frame: memoryview) -> tuple[int, int] | None:
        """The epoch and the offset in this poll, if it has this form."""
        epoch_at, offset_at = self.epoch_at, self.offset_at
        if (
            bytes(frame[self.start : epoch_at]) != self.before
            or bytes(frame[epoch_at + INT32.size : offset_at]) != self.between
            or bytes(frame[offset_at + INT64.size :]) != self.after
        ):
            return None
        return INT32.unpack_from(frame, epoch_at)[0], INT64.unpack_from(frame, offset_at)[0]

    def asks(self, offset: int) -> bytes:
        """The request to the broker for this offset."""
        at = self.asked_offset_at
        return b"".join((self.asked[:at], INT64.pack(offset), self.asked[at + INT64.size :]))


def epoch_at(scan: FetchRequestScan) -> int:
    """The place of the session's epoch in a request with sessions."""
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
    """Made from the poll in `frame`, for which the broker was `asked`; None if the poll does not name its partition."""
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
