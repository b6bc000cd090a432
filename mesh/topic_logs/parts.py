"""A stitched log read as one: the parts on their clusters, with the offsets that clients see.

A copy and a certificate read a log by three questions (`Source`). One cluster answers them (`brokers`), or the parts of
a stitched log do, each from its cluster. The base offset of a batch lies outside its checksum, so it is written anew.

A part ends where the next part begins. Its cluster may have more behind that, which is no record of the log.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mesh.stitches import LogPart
from mesh.topic_logs.batches import batches
from mesh.topic_logs.brokers import WAIT_MS, Brokers, CopySetbackError, Fetched

_OFFSET: Final = struct.Struct(">q")
END_AGAIN_S: Final = 1.0
"""Seconds between two questions for the end of the log while an old part is read."""


class Source(Protocol):
    """A log that can be copied, as `Brokers` have it. Each method raises CopySetbackError."""

    name: str

    async def partitions(self, topic: str) -> list[int]:
        """The partitions; none if there is no such topic."""
        ...

    async def range(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset, and the offset behind the last record."""
        ...

    async def fetch(self, topic: str, partition: int, offset: int, size: int, wait_ms: int = WAIT_MS) -> Fetched:
        """Batches from this offset on, up to the last stable offset."""
        ...


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A partition of a part."""

    brokers: Brokers
    topic: str
    shift: int
    start: int
    end: int | None
    """The begin of the next part; None: this is the last one."""


class PartedLog:
    """A `Source` made of parts, the oldest first. The topic that a caller names does not matter: the parts name it."""

    def __init__(self, parts: Sequence[LogPart], brokers: Mapping[str, Brokers]) -> None:
        """`brokers`: by the names of the parts' clusters."""
        self._parts = parts
        self._brokers = brokers
        self.name = " and ".join(dict.fromkeys(part.cluster for part in parts))
        self._ends: dict[int, tuple[float, int]] = {}
        """Partition -> when the end of the log was asked for, and the end."""

    async def partitions(self, topic: str) -> list[int]:
        found: list[int] = []
        for part in self._parts:
            found = await self._brokers[part.cluster].partitions(part.topic)
            if found != list(range(len(part.starts))):
                raise CopySetbackError(
                    f"topic {part.topic!r} has {len(found)} partitions on {part.cluster!r}, and {len(part.starts)} in "
                    "the stitched log"
                )
        return found

    async def range(self, topic: str, partition: int) -> tuple[int, int]:
        stretches = self._stretches(partition)
        last = stretches[-1]
        _, end = await last.brokers.range(last.topic, partition)
        for each in stretches:
            known, _ = await each.brokers.range(each.topic, partition)
            first = max(each.start, known + each.shift)
            if each.end is None or first < each.end:
                return first, end + last.shift
        raise AssertionError("the last part has no end")

    async def fetch(self, topic: str, partition: int, offset: int, size: int, wait_ms: int = WAIT_MS) -> Fetched:
        stretches = self._stretches(partition)
        here = next((each for each in stretches if each.end is None or offset < each.end), stretches[-1])
        found = await here.brokers.fetch(here.topic, partition, offset - here.shift, size, wait_ms)
        stable, records = found.stable + here.shift, shifted(found.records, here.shift, here.end)
        if here.end is not None and stable >= here.end:
            stable = await self._end(stretches[-1], partition)
        aborted = [(producer, first + here.shift) for producer, first in found.aborted]
        return Fetched(stable, found.start + here.shift, aborted, records)

    async def _end(self, last: _Stretch, partition: int) -> int:
        """The stable end of the log, not older than a second."""
        at, end = self._ends.get(partition, (0.0, 0))
        if not at or time.monotonic() - at > END_AGAIN_S:
            end = (await last.brokers.stable_ends(last.topic, [partition]))[partition] + last.shift
            self._ends[partition] = time.monotonic(), end
        return end

    def _stretches(self, partition: int) -> list[_Stretch]:
        """The parts that have offsets in this partition. An old part may be empty there."""
        found: list[_Stretch] = []
        end: int | None = None
        for part in reversed(self._parts):
            start = part.starts[partition]
            if end is None or start < end:
                brokers = self._brokers[part.cluster]
                found.append(_Stretch(brokers, part.topic, part.shifts[partition], start, end))
                end = start
        return found[::-1]


def shifted(records: bytes, shift: int, end: int | None) -> bytes:
    """The whole batches with offsets that clients see. Batches from `end` on, as clients see it, are left out."""
    made = bytearray(records)
    at = 0
    for batch in batches(records):
        if end is not None and batch.base_offset + shift >= end:
            break
        _OFFSET.pack_into(made, at, batch.base_offset + shift)
        at += len(batch.raw)
    return bytes(made[:at])
