"""Fetch of stitched logs: which part a client reads from, and the answers of its cluster with offsets of clients.

1. Each position of a client is in one part. Its partition is read there, under the topic's name there. Batches at or
   behind the end of the part are cut off: somebody may have written there after the cut.
2. A consumer must come to the next part. An old part without records at a position in front of its end either lets the
   consumer wait, because a transaction is open or replicas are behind; or it has lost these records. The end of the
   leader's own log decides. If the records are lost, the answer is OFFSET_OUT_OF_RANGE. The cluster itself gives the
   same answer for records that retention has taken.
3. The past of a fork is read by the name of the topic that it is from (`past_reads`). The poll knows it by that name.
4. Requests name topics, so a topic that was made anew answers in the place of the one that is gone. When records of an
   old part have come, the broker is asked for the topic's id. Records of another topic are not given out.
5. An old part whose cluster is away gets NOT_LEADER_OR_FOLLOWER, as any partition does.
"""

from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Any, NamedTuple

import structlog

from mesh.transactions import LogPlace
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Broker, Call, Command, Lane, MeshView, Unreachable, ask_all
from services.gateway.requests.records.broker_fetches import Found, Limits, NamedSlot
from services.gateway.requests.records.fetch_poll import Poll
from services.gateway.requests.records.fetch_sessions import Position, Slot
from services.gateway.requests.records.past_reads import TURN_S
from services.gateway.requests.records.replication import DEBUGGER
from services.gateway.requests.records.stitched import Part, Stretch, at, stretches
from services.gateway.requests.topic_ids import HIGHEST_METADATA
from services.gateway.requests.transactions.stable_offsets import READ_UNCOMMITTED, question
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import end_of_whole, last_offset, shift_offsets
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.list_offsets import ListOffsetsResponse
from services.gateway.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from services.gateway.wire.scanner.fetch_join import refilled
from services.gateway.wire.schema import NO_UUID

log = structlog.get_logger(__name__)


class Reading(NamedTuple):
    """The partitions of a Fetch with the offsets of their clusters."""

    wanted: Mapping[Slot, Position]
    parts: Mapping[Slot, Stretch]
    """The parts that partitions of stitched logs are read from."""
    refused: dict[Slot, ErrorCode]
    shown_as: Mapping[Slot, Slot] = {}
    """Names in requests for the past of forks -> the names that the client has for it."""
    aside: Mapping[Slot, float] = {}
    """Partitions of the client that this poll does not ask for, and for how many seconds."""

    def within(self, limits: Limits) -> Limits:
        """Partitions that wait have their turn soon."""
        if not self.aside:
            return limits
        max_wait_ms = min(limits.max_wait_ms, round(1000 * min(self.aside.values())))
        return Limits(max_wait_ms, limits.min_bytes, limits.max_bytes, limits.rack_id)


def read_in_parts(wanted: Mapping[Slot, Position], mesh: MeshView) -> Reading:
    if not mesh.memory.stitches.logs:
        return Reading(wanted, {}, {})
    converted: dict[Slot, Position] = {}
    parts_read: dict[Slot, Stretch] = {}
    refused: dict[Slot, ErrorCode] = {}
    past: list[tuple[Slot, Position, Stretch]] = []
    for slot, position in wanted.items():
        parts = stretches(*slot, mesh)
        part = at(parts, position.offset)
        if not parts:
            converted[slot] = position
        elif part is None:
            refused[slot] = ErrorCode.OFFSET_OUT_OF_RANGE
        elif part.is_past:
            past.append((slot, Position(part.there(position.offset), position.max_bytes), part))
        else:
            converted[slot] = Position(part.there(position.offset), position.max_bytes)
            parts_read[slot] = part
    reading = Reading(converted, parts_read, refused, {}, {})
    if past:
        reading = _with_past(reading, past, mesh)
    for which in {_kind_of(part) for part in reading.parts.values()}:
        mesh.memory.on_part(which)
    return reading


def _kind_of(part: Stretch) -> Part:
    if part.is_past:
        return Part.PAST
    return Part.PRESENT if part.end is None else Part.OLD


def _with_past(reading: Reading, past: Iterable[tuple[Slot, Position, Stretch]], mesh: MeshView) -> Reading:
    """The partitions that have their turn, by their names in requests."""
    wanted, parts, aside = dict(reading.wanted), dict(reading.parts), dict(reading.aside)
    shown_as: dict[Slot, Slot] = {}
    for slot, wish, part in past:
        topic, asked = str(slot[0]), (part.topic, slot[1])
        wait_s = mesh.memory.past_reads.wait_s(topic, mesh.now)
        bound = mesh.memory.stitches.logs[topic].past_bytes_per_second
        position = Position(wish.offset, min(wish.max_bytes, bound)) if bound else wish
        if not wait_s and asked in wanted:  # a turn for each of them, now and then
            if mesh.random_bits(1):
                wait_s = TURN_S
            else:
                aside[shown_as.get(asked, asked)] = TURN_S
        if wait_s:
            aside[slot] = wait_s
        else:
            wanted[asked], parts[asked], shown_as[asked] = position, part, slot
    return reading._replace(wanted=wanted, parts=parts, shown_as=shown_as, aside=aside)


def find_lost_ends(poll: Poll) -> Generator[Command, Any, None]:
    """Refuses the positions at which an old part has nothing more to read."""
    suspect: dict[Place, dict[LogPlace, Slot]] = {}
    for slot, part in poll.parts_read.items():
        if part.end_there is None:
            continue
        found = poll.found.get(slot)
        if found is not None and found.part.record_bytes:
            if last_offset(found.buffer, found.part.records_start, found.part.records_end) >= part.end_there:
                _refuse(poll, slot, part)
        elif (place := _place_to_ask(poll, slot, found)) is not None:
            suspect.setdefault(place, {})[part.place(slot[1])] = slot
    if not suspect:
        return
    poll.own()  # the plan waits now
    calls = [question(at, logs, READ_UNCOMMITTED, poll.mesh, replica_id=DEBUGGER) for at, logs in suspect.items()]
    outcomes = yield from ask_all(calls, ListOffsetsResponse)
    for (place, logs), outcome in zip(suspect.items(), outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            continue
        for topic in outcome.topics:
            for told in topic.partitions:
                slot = logs[LogPlace(place.cluster, topic.name, told.partition_index)]
                if not told.error_code and told.offset <= poll.wanted[slot].offset:
                    _refuse(poll, slot, poll.parts_read[slot])


def refuse_others(poll: Poll) -> Generator[Command, Any, None]:
    """Refuses the records of topics that are not those of the parts."""
    read: dict[Place, list[NamedSlot]] = {}
    for place, asked in poll.parts.items():
        for slot in asked:
            part, found = poll.parts_read.get(slot), poll.found.get(slot)
            if part and part.topic_id and part.end is not None and found is not None and found.part.record_bytes:
                read.setdefault(place, []).append(slot)
    if not read:
        return
    poll.own()  # the plan waits now
    calls = [_question_for_ids(place, {topic for topic, _ in slots}, poll.mesh) for place, slots in read.items()]
    outcomes = yield from ask_all(calls, MetadataResponse)
    for (place, slots), outcome in zip(read.items(), outcomes, strict=True):
        ids = {} if isinstance(outcome, Unreachable) else {topic.name: topic.topic_id for topic in outcome.topics}
        others = [slot for slot in slots if ids.get(slot[0]) not in (poll.parts_read[slot].topic_id, NO_UUID)]
        for slot in others:
            poll.found.pop(slot)
            poll.refused[slot] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for topic in sorted({topic for topic, _ in others if topic in ids}):
            log.warning("the topic of an old part was made anew, and is not read", topic=topic, cluster=place.cluster)


def _question_for_ids(place: Place, topics: Collection[str], mesh: MeshView) -> Call:
    named = [MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    question = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    version = highest_version(mesh, place.cluster, ApiKey.METADATA, HIGHEST_METADATA)
    return Call(place.cluster, question, version, Broker(place.broker_id), Lane.CLIENT, by_mesh=True)


def _place_to_ask(poll: Poll, slot: Slot, found: Found | None) -> Place | None:
    """The broker of a partition whose marks show nothing to read; None without one."""
    if found is not None and found.part.error_code:
        return None
    marks = found.marks if found is not None else poll.marks_of_brokers().get(slot)
    if marks is None or not 0 <= marks.high_watermark <= poll.wanted[slot].offset:
        return None
    return next((place for place, slots in poll.parts.items() if slot in slots), None)


def _refuse(poll: Poll, slot: Slot, part: Stretch) -> None:
    poll.found.pop(slot, None)
    poll.refused[slot] = ErrorCode.OFFSET_OUT_OF_RANGE
    log.warning(
        "a cluster has lost the last records of an old part of a topic",
        topic=slot[0],
        partition=slot[1],
        cluster=part.cluster,
        offset=part.shown(poll.wanted[slot].offset),
        part_end=part.end,
    )


def show(poll: Poll) -> None:
    """Gives the answers of clusters the offsets of clients."""
    if not poll.parts_read:
        return
    poll.whole = None
    for slot, part in poll.parts_read.items():
        found = poll.found.get(slot)
        if found is not None:
            poll.found[slot] = _shown(found, part)
    poll.waiting = {
        slot: poll.parts_read[slot].shown_marks(marks) if slot in poll.parts_read else marks
        for slot, marks in poll.waiting.items()
    }
    if poll.shown_as:
        _count_past(poll)
        poll.found = {poll.shown_as.get(slot, slot): found for slot, found in poll.found.items()}
        poll.refused = {poll.shown_as.get(slot, slot): error for slot, error in poll.refused.items()}
        poll.waiting = {poll.shown_as.get(slot, slot): marks for slot, marks in poll.waiting.items()}


def _count_past(poll: Poll) -> None:
    logs, memory = poll.mesh.memory.stitches.logs, poll.mesh.memory
    for asked, (topic, _) in poll.shown_as.items():
        log_of_fork, found = logs.get(str(topic)), poll.found.get(asked)
        if found is not None and log_of_fork is not None and log_of_fork.past_bytes_per_second:
            size = found.part.record_bytes
            memory.past_reads.count(log_of_fork.topic, size, log_of_fork.past_bytes_per_second, poll.mesh.now)


def _shown(found: Found, stretch: Stretch) -> Found:
    part, records = found.part, bytearray()
    if part.record_bytes:
        end, end_there = part.records_end, stretch.end_there
        if end_there is not None:
            end = end_of_whole(found.buffer, part.records_start, end, end_there)
        records += memoryview(found.buffer)[part.records_start : end]
        shift_offsets(records, stretch.shift)
    marks = stretch.shown_marks(found.marks).numbers
    buffer, made = refilled(found.buffer, part, found.version, records, marks, stretch.shift)
    return Found(buffer, found.version, made)
