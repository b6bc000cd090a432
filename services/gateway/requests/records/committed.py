"""Fetch for `read_committed` readers of several clusters: records of a transaction wait until all clusters show it.

`transactions.holding` says what has to wait. Here an answer is cut at that offset: the records and the last stable
offset end there, the high watermark stays. A partition with nothing before that offset is not asked for at all. Its
reader gets an early answer, and asks again.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mesh.transactions import LogPlace
from services.gateway.requests.plan import Command, Gather, MeshView, RawResponse
from services.gateway.requests.records.broker_fetches import Found, Limits
from services.gateway.requests.records.fetch_poll import Poll
from services.gateway.requests.records.fetch_sessions import UNKNOWN_MARKS, Marks, Position, Slot
from services.gateway.requests.records.stitched import Stretch
from services.gateway.requests.transactions.holding import holds_now, known_holds, note_held, place_of
from services.gateway.requests.transactions.sight import RETRY_S, Holds
from services.gateway.wire.batches import end_of_whole, first_transactional
from services.gateway.wire.primitives import Buffer
from services.gateway.wire.scanner import (
    Entries,
    FetchedPartition,
    FetchResponseScan,
    join_fetch_response,
    scan_fetch_response,
)
from services.gateway.wire.scanner.fetch_join import shortened_entry
from services.gateway.wire.schema import NO_UUID

UNFINISHED: Final = "unfinished"
UNSEEN: Final = "unseen"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Partitions that wait for a decision, and how long an answer may wait for others meanwhile."""

    slots: Mapping[Slot, Marks] = field(default_factory=dict)
    """With their last marks, the last stable offset among them as readers are shown it."""
    wait_s: float = 0.0

    def others(self, wanted: Mapping[Slot, Position]) -> Mapping[Slot, Position]:
        return {slot: position for slot, position in wanted.items() if slot not in self.slots} if self.slots else wanted

    def within(self, limits: Limits) -> Limits:
        if not self.slots:
            return limits
        max_wait_ms = min(limits.max_wait_ms, int(self.wait_s * 1000))
        return Limits(max_wait_ms, limits.min_bytes, limits.max_bytes, limits.rack_id)


def waiting_at(
    wanted: Mapping[Slot, Position], parts: Mapping[Slot, Stretch], mesh: MeshView
) -> Generator[Command, Any, Waiting]:
    """The partitions with nothing to show before the offset that their reader wants.

    `parts`: those from which partitions of stitched logs are read.
    """
    if not _held(wanted, parts, known_holds(mesh), mesh):
        return Waiting()
    holds = yield from holds_now(mesh)
    held = _held(wanted, parts, holds, mesh)
    if not held:
        return Waiting()
    mesh.memory.sight.on_held(UNFINISHED)
    session = mesh.session
    session.waiting = {
        slot: Marks(known.high_watermark, stable, known.log_start_offset)
        for slot, (stable, _) in held.items()
        for known in (_marks(slot, parts, mesh),)
    }
    return Waiting(session.waiting, min(seconds for _, seconds in held.values()))


def _marks(slot: Slot, parts: Mapping[Slot, Stretch], mesh: MeshView) -> Marks:
    """The last marks from a broker, which is not asked while the partition waits."""
    session, (topic, partition), part = mesh.session, slot, parts.get(slot)
    known = (
        fetches.marks.get((str(topic), partition))
        for (cluster, _), fetches in session.broker_fetches.items()
        if part is None or part.cluster == cluster
    )
    last = UNKNOWN_MARKS if part is not None else session.waiting.get(slot, UNKNOWN_MARKS)
    return next((marks for marks in known if marks is not None), last)


def _place(slot: Slot, parts: Mapping[Slot, Stretch], mesh: MeshView) -> LogPlace | None:
    topic, partition = slot
    part = parts.get(slot)
    if part is not None:
        return part.place(partition)
    return place_of(topic, partition, mesh) if isinstance(topic, str) else None


def _held(
    wanted: Mapping[Slot, Position], parts: Mapping[Slot, Stretch], holds: Holds, mesh: MeshView
) -> dict[Slot, tuple[int, float]]:
    """With the last stable offset to show, and the seconds after which a reader may ask again."""
    held: dict[Slot, tuple[int, float]] = {}
    for slot, position in wanted.items() if holds.by_place else ():
        place = _place(slot, parts, mesh)
        stable = None if place is None else holds.stable(place)
        if place is not None and stable is not None and stable <= position.offset:
            held[slot] = (stable, note_held(place, holds, mesh))
    return held


def hold_back(poll: Poll) -> Generator[Command, Any, bool]:
    """Cuts the answers of brokers that the poll has found. Returns whether anything was cut."""
    mesh = poll.mesh
    suspect: dict[Slot, int] = {}
    for slot, found in poll.found.items():
        at = _first_transactional(found)
        if at is not None:
            suspect[slot] = at
    if not suspect:
        return False
    _own(poll)
    holds = yield from holds_now(mesh)
    cut = False
    for slot, first in suspect.items():
        found, place = poll.found[slot], _place(slot, poll.parts_read, mesh)
        stable = None if place is None else holds.stable(place)
        if holds.blind:
            stable = first if stable is None else min(first, stable)
        if place is not None and stable is not None and stable < found.part.last_stable_offset:
            poll.found[slot] = shortened(found, stable)
            note_held(place, holds, mesh)
            cut = True
    if cut:
        mesh.memory.sight.on_held(UNSEEN if holds.blind else UNFINISHED)
        poll.whole = None
        if holds.blind and not poll.record_bytes:
            yield Gather((), lambda _: False, min(RETRY_S, poll.limits.wait_s), waits_for="unseen")
    return cut


def has_transactions(frame: Buffer, scan: FetchResponseScan) -> bool:
    """Whether a broker's answer has records of transactions."""
    return bool(scan.record_bytes) and any(
        part.record_bytes and first_transactional(frame, part.records_start, part.records_end) is not None
        for topic in scan.topics
        for part in topic.partitions
    )


def _first_transactional(found: Found) -> int | None:
    part = found.part
    if not part.record_bytes:
        return None
    return first_transactional(found.buffer, part.records_start, part.records_end)


def _own(poll: Poll) -> None:
    """Copies the answers, which must outlast the reading of logs: they may be in a receive buffer."""
    copies: dict[int, Buffer] = {}
    whole = poll.whole
    for slot, found in poll.found.items():
        key = id(found.buffer)
        if key not in copies:
            copies[key] = memoryview(bytearray(found.buffer))
            if whole is not None and whole.frame is found.buffer:
                poll.whole = RawResponse(memoryview(copies[key]), whole.body_offset, whole.version)
        poll.found[slot] = Found(copies[key], found.version, found.part)


def shortened(found: Found, stable: int) -> Found:
    """The same answer as if the partition's last stable offset were this one."""
    part = found.part
    end = end_of_whole(found.buffer, part.records_start, part.records_end, stable) if part.record_bytes else 0
    entry = shortened_entry(found.buffer, part, found.version, end, stable)
    body = b"".join(join_fetch_response(found.version, [Entries("", NO_UUID, [entry])]))
    made: FetchedPartition = scan_fetch_response(body, found.version, 0, len(body)).topics[0].partitions[0]
    return Found(body, found.version, made)
