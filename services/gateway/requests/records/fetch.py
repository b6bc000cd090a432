"""Fetch: records of partitions on several clusters, in one answer.

Theory of operation
1. `fetch_sessions` finds out which partitions a request asks for, by itself or by its session with the gateway;
   `fetch_poll` fetches their records from the brokers. This module joins the two: it answers with the fetched records,
   in the client's version.
2. Requests to clusters name topics, so from version 13 on ids are exchanged for names and back (`topic_ids`). A cluster
   that is older than the client is asked in its own version.
3. Leader epochs never pass, neither to a cluster nor to a client. Hints at leaders (KIP-951) and the choice of a nearer
   replica do not pass either.
4. An answer has no more bytes than the client takes, over all clusters; but one batch, if that alone is more. The rest
   is left to the next request, in which other partitions come first.
5. With one leader and no field to hide or to change, the answer passes as it came. Records are never copied or opened,
   but for those of topics with a rule of protection (`revealing`).
6. Positions and answers of stitched logs change from the offsets of clients to those of clusters and back
   (`stitched_fetch`). Sessions and all that comes after the poll have those of clients.
7. The gateway's own refusals (no rule, no leader, no broker reached) come with the rest of the answer, or after the
   client's wait. A client that is answered at once would ask again at once.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Protocol

from services.gateway.requests.placement import Place
from services.gateway.requests.plan import (
    Answer,
    Body,
    Command,
    Gather,
    MeshView,
    Plan,
    Request,
)
from services.gateway.requests.records.broker_fetches import Found, Limits, limits_of
from services.gateway.requests.records.committed import Waiting, hold_back, waiting_at
from services.gateway.requests.records.fetch_poll import Poll, fitting
from services.gateway.requests.records.fetch_sessions import (
    NOTHING_NEW,
    Asked,
    FetchSession,
    Position,
    Result,
    Slot,
    Topic,
    Wish,
    told_of,
    wish_of,
)
from services.gateway.requests.records.revealing import bar, reveal
from services.gateway.requests.records.stitched_fetch import find_lost_ends, read_in_parts, refuse_others, show
from services.gateway.requests.topic_ids import mesh_topic_id, topic_names
from services.gateway.requests.traffic.calls import CountedCall, begun
from services.gateway.requests.transactions.holding import concerns
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.fetch import FetchRequest, FetchResponse
from services.gateway.wire.scanner import cut_entry, join_fetch_response, own_entry
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.fetch_join import Entry, by_topic
from services.gateway.wire.schema import NO_UUID


def handle(request: Request, mesh: MeshView) -> Plan:
    counted = begun(request, mesh)
    message = request.decode(FetchRequest)
    by_ids = request.version >= IDS_SINCE
    asked = yield from _asked(message, by_ids, mesh)
    mesh.session.uses.consumed.note_all(topic for topic, _ in asked.partitions if isinstance(topic, str))
    wish = wish_of(mesh.memory.fetch_sessions, asked, mesh.now)
    if isinstance(wish, ErrorCode):
        return FetchResponse(error_code=wish)
    limits = limits_of(message.max_wait_ms, message.min_bytes, message.max_bytes, message.rack_id)
    limits = limits.within(mesh.poll_bytes)
    waits, reading = Waiting(), read_in_parts(wish.wanted, mesh)
    if concerns(mesh.table, message.isolation_level):
        waits = yield from waiting_at(reading.wanted, reading.parts, mesh)
    wanted, limits = waits.others(reading.wanted), reading.within(waits.within(limits))
    if not wanted and (waits.slots or reading.aside):
        yield Gather((), lambda _: False, limits.wait_s)
    poll = Poll(mesh, wanted, request.version, message.isolation_level, limits, not wish.alone, reading.parts)
    poll.refused.update(reading.refused)
    poll.waiting = waits.slots
    poll.shown_as, poll.leaves_out = reading.shown_as, bool(reading.aside)
    answer = yield from _polled(mesh, wish, poll, counted)
    return answer


class Doubted(Protocol):
    """A forwarded Fetch whose brokers' answers a plan has to see."""

    @property
    def wanted(self) -> Mapping[Slot, Position]: ...

    @property
    def session(self) -> FetchSession | None: ...

    @property
    def epoch(self) -> int: ...

    @property
    def isolation_level(self) -> int: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def found(self) -> Mapping[Slot, Found]: ...

    @property
    def asked(self) -> Iterable[Place]:
        """The brokers that it has asked itself."""


def ended_in_doubt(request: Request, mesh: MeshView, doubted: Doubted, began: float | None) -> Plan:
    """The plan of a forwarded Fetch whose answers may not pass; it goes on as if it had asked the brokers itself.

    `request` has only its header left; `began`: the start by the clock of traffic, if traffic is counted.
    """
    counted = begun(request, mesh)
    if counted is not None and began is not None:
        counted.since(began)
    wish = Wish(doubted.wanted, doubted.session, doubted.epoch)
    limits = doubted.limits.within(mesh.poll_bytes)
    reading = read_in_parts(wish.wanted, mesh)
    version, isolation_level = request.version, doubted.isolation_level
    poll = Poll(mesh, reading.wanted, version, isolation_level, limits, not wish.alone, reading.parts)
    poll.refused.update(reading.refused)
    poll.found.update(doubted.found)
    poll.asked.update(doubted.asked)
    answer = yield from _polled(mesh, wish, poll, counted)
    return answer


def _polled(mesh: MeshView, wish: Wish, poll: Poll, counted: CountedCall | None) -> Generator[Command, Any, Answer]:
    yield from bar(poll)
    yield from poll.run()
    if poll.parts_read:
        yield from refuse_others(poll)
        yield from find_lost_ends(poll)
    if concerns(mesh.table, poll.isolation_level):
        yield from hold_back(poll)
    yield from reveal(poll)
    show(poll)
    found = poll.found if poll.brokers == 1 else fitting(wish.wanted, poll.found, poll.limits.max_bytes)
    answer = _answer(poll.version, mesh, wish, poll, found)
    if counted is not None:  # without an answer for its session the client gets no records
        counted.fetched({} if isinstance(answer, FetchResponse) else found, poll.refused)
    return answer


def _asked(message: FetchRequest, by_ids: bool, mesh: MeshView) -> Generator[Command, Any, Asked]:
    """The request with names in the place of ids."""
    names: dict[bytes, str] = {}
    if by_ids:
        session = mesh.memory.fetch_sessions.get(message.session_id)
        strange = session.strange_ids() if session is not None else set[bytes]()
        forgotten_ids = {topic.topic_id for topic in message.forgotten_topics_data}
        names = yield from topic_names(mesh, {t.topic_id for t in message.topics} | forgotten_ids | strange)
        if session is not None and strange & names.keys():
            session.learn_names(names)

    def named(topic: str, topic_id: bytes) -> Topic:
        return names.get(topic_id, topic_id) if by_ids else topic

    return Asked(
        message.session_id,
        message.session_epoch,
        by_ids,
        {
            (name, p.partition): Position(p.fetch_offset, p.partition_max_bytes)
            for topic in message.topics
            for name in (named(topic.topic, topic.topic_id),)
            for p in topic.partitions
        },
        [
            (name, partition)
            for topic in message.forgotten_topics_data
            for name in (named(topic.topic, topic.topic_id),)
            for partition in topic.partitions
        ],
    )


def _answer(version: int, mesh: MeshView, wish: Wish, poll: Poll, found: Mapping[Slot, Found]) -> Answer:
    whole = poll.whole
    if whole is not None and whole.version == version and wish.alone:
        return whole
    results = {slot: Result(marks) for slot, marks in poll.marks().items()} if wish.untold else {}
    results |= {slot: Result(marks) for slot, marks in poll.waiting.items()}
    results |= {slot: Result(error_code=error) for slot, error in poll.refused.items()}
    results |= {slot: Result(each.marks, each.part.error_code, each.part.record_bytes) for slot, each in found.items()}
    told = told_of(
        mesh.memory.fetch_sessions,
        wish,
        results,
        by_ids=version >= IDS_SINCE,
        now=mesh.now,
        random_bits=mesh.random_bits,
    )
    if isinstance(told, ErrorCode):
        return FetchResponse(error_code=told)
    entries = by_topic(
        (*_names_of(topic, version, mesh), _entry(version, (topic, partition), found, results))
        for topic, partition in told.slots
    )
    pieces = join_fetch_response(version, entries, throttle_time_ms=poll.throttle_time_ms, session_id=told.session_id)
    return Body(tuple(pieces), {results[slot].error_code for slot in told.slots if slot in results})


def _entry(version: int, slot: Slot, found: Mapping[Slot, Found], results: Mapping[Slot, Result]) -> Entry:
    each = found.get(slot)
    if each is not None:
        return cut_entry(each.buffer, each.part, each.version, version)
    result = results.get(slot, NOTHING_NEW)
    return own_entry(version, slot[1], result.error_code, *result.marks.numbers)


def _names_of(topic: Topic, version: int, mesh: MeshView) -> tuple[str, bytes]:
    """Name and id of a topic, as far as the version has them."""
    if isinstance(topic, bytes):
        return "", topic
    return topic, mesh_topic_id(mesh.mesh_id, topic) if version >= IDS_SINCE else NO_UUID
