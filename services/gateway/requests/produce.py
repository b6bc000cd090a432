"""Produce: records to the leaders of their partitions, untouched.

Theory of operation
1. A request whose partitions all have one leader passes as it came; its answer too, unless it reports an error. Any
   other request is cut into one for each leader from slices of its own bytes; answers come in the client's order.
   Upstream goes by name, so from version 13 on ids are exchanged for names and back (`topic_ids`); a cluster that is
   older than the client is spoken to in its own version. Batches are the same in all of them.
2. The gateway itself answers a partition with NOT_LEADER_OR_FOLLOWER (the cluster is out of reach or the leader not
   known) or UNKNOWN_TOPIC_OR_PARTITION (no rule, no such topic). Every client tries both again; other codes are fatal
   to some (protocol-ideas 1). A batch that was sent and got no answer is neither: `MAYBE_WRITTEN`; nor is one whose
   leader has stepped down meanwhile, and says NOT_LEADER_OR_FOLLOWER: its followers may have the batch.
3. After a refused batch, later ones of its producer and partition are refused too until it comes back (`Refusals`).
4. With acks 0 nobody waits for an answer. What can't be sent closes the connection, the only sign such a client sees;
   so does a broker that ends its own (`Lanes.on_unheard`), as it does when it is not the leader.
5. What a topic's last cluster has stored already is not stored again, and nothing comes there out of order (`seams`).
6. On a topic's second and later visits to a cluster the producer ids of its batches are patched (`wire.batches`).
   Transactional ones keep theirs: it is the one that their coordinator knows.
7. A transaction writes to topics of its own cluster, or under the identity that it has on theirs (`transactions`).
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from services.gateway.requests.memory import BatchKey, Refusals
from services.gateway.requests.placement import LEADER_ERRORS, Place, Wanted, locate
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    Ask,
    Body,
    Broker,
    Call,
    Close,
    Command,
    Lane,
    MeshView,
    NoAnswer,
    Outcome,
    Plan,
    RawResponse,
    Request,
    Sent,
    Stale,
    Unreachable,
    Verbatim,
)
from services.gateway.requests.seams import Verdict, is_open, judged, look_behind
from services.gateway.requests.topic_ids import topic_names
from services.gateway.requests.transactions.records import Closed, admit, bearable
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import BatchHeader, patch_producer_id, visit_producer_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from services.gateway.wire.primitives import WireError
from services.gateway.wire.scanner import ProducePartition, ProduceScan, ProduceTopic, scan_produce, split_produce
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.produce_response import produce_response_is_clean, with_topic_ids

NAMES_UNTIL = IDS_SINCE - 1
"""The last version that names topics, and so the newest that clusters are spoken to in."""

Item = tuple[ProduceTopic, ProducePartition]
Slot = tuple[str, int]
"""Topic and partition."""
MAYBE_WRITTEN = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
"""For a batch that has no answer: clients send it again as it is. On NOT_LEADER_OR_FOLLOWER librdkafka takes it for not
written and may cut its records into other batches, which a broker that has it refuses for ever."""


@dataclass(slots=True, eq=False)
class _Produce:
    """One request on its way."""

    request: Request
    mesh: MeshView
    scan: ProduceScan
    results: dict[Slot, PartitionProduceResponse] = field(default_factory=dict)
    strange: list[ProduceTopic] = field(default_factory=list)
    """Topics of the request, but not of the scan: nobody knows their ids."""
    batches: dict[Slot, BatchHeader] = field(default_factory=dict)
    """First batch of each partition whose producer numbers its batches, as the client sent it."""
    closed: Closed = field(default_factory=dict)
    """Topics that the request's transaction may not write to."""
    sole: Place | None = None
    """Where all of it was sent, if that is one broker ..."""
    places: dict[Slot, Place] = field(default_factory=dict)
    """... and where each partition was, if not."""

    def sent_to(self, topic: str, partition: int) -> Place | None:
        if self.sole is None:
            return self.places.get((topic, partition))
        found = any(t.name == topic and any(p.partition == partition for p in t.partitions) for t in self.scan.topics)
        return self.sole if found else None

    def overtakes(self, topic: str, partition: int, place: Place) -> bool:
        """Whether an earlier batch of this connection is still on its way to another broker, which led the partition.

        Should that broker refuse it, the new leader may never have heard of its producer, and take this one for its
        beginning: the earlier one would be refused for ever.
        """
        sent = (other.sent_to(topic, partition) for other in self.mesh.session.producing if other is not self)
        return any(earlier is not None and earlier != place for earlier in sent)

    @property
    def refusals(self) -> Refusals:
        return self.mesh.memory.refusals

    def refuse(self, slot: Slot, error: int) -> None:
        """Answer a partition ourselves."""
        self.results[slot] = PartitionProduceResponse(index=slot[1], error_code=error, base_offset=-1)
        if error in LEADER_ERRORS or error == MAYBE_WRITTEN:
            self.not_written(slot)

    def not_written(self, slot: Slot) -> None:
        batch = self.batches.get(slot)
        if batch is not None:
            if self.results[slot].error_code == MAYBE_WRITTEN:
                self.mesh.memory.doubts.put(_key(slot, batch), True, self.mesh.now)
            answered_by = self.mesh.now + max(0, self.scan.timeout_ms) / 1000
            self.refusals.refuse(_key(slot, batch), batch.base_sequence, answered_by)


def _key(slot: Slot, batch: BatchHeader) -> BatchKey:
    return (batch.producer_id, batch.producer_epoch, *slot)


def handle(request: Request, mesh: MeshView) -> Plan:
    scan = scan_produce(request.frame, request.version, request.header.body_offset, len(request.frame))
    produce = _Produce(request, mesh, scan)
    mesh.session.producing.append(produce)
    try:
        return (yield from _carried(produce))
    finally:
        mesh.session.producing.remove(produce)


def _carried(produce: _Produce) -> Plan:
    request, mesh, scan = produce.request, produce.mesh, produce.scan
    if request.version >= IDS_SINCE:
        scan = yield from _named(produce)
    if scan.transactional_id is not None:
        for wanted in _partitions(scan):  # their identity is another one afterwards
            _note_batch(produce, wanted)
        produce.closed = yield from admit(request.frame, scan, mesh)
    sole = produce.sole = _sole_leader(produce)
    if sole is not None:
        (outcome,) = yield Ask((_call(produce, sole, None),))
        if scan.acks == 0 and isinstance(outcome, Sent):
            return NoAnswer()
        passing = _passing(produce, outcome)
        if passing is not None:
            return passing
        parts = list(_partitions(scan))
        for wanted in parts:
            _note_batch(produce, wanted)
        if scan.acks == 0:
            return _without_acks(produce, [(sole, parts, outcome)])
        yield from _take(produce, sole, parts, outcome)
        return _answer(produce)
    crossing = _enter_seams(produce)
    try:
        return (yield from _in_parts(produce))
    finally:
        for key in crossing:
            mesh.memory.passages.leave(key, produce)


def _enter_seams(produce: _Produce) -> list[BatchKey]:
    """Say what is on its way over a seam, in the order in which requests start."""
    crossing: list[BatchKey] = []
    for wanted in _partitions(produce.scan) if produce.scan.acks != 0 else ():
        slot = (wanted.topic, wanted.partition)
        route = produce.mesh.table.route(wanted.topic)
        if route is not None and is_open(*slot, route, produce.mesh):
            batch = _note_batch(produce, wanted)
            if batch is not None:
                crossing.append(_key(slot, batch))
                produce.mesh.memory.passages.enter(crossing[-1], produce, batch.base_sequence, produce.mesh.session)
    return crossing


def _in_parts(produce: _Produce) -> Plan:
    """The request partition by partition."""
    scan, mesh = produce.scan, produce.mesh
    if scan.acks != 0:
        slots = [(wanted.topic, wanted.partition) for wanted in _partitions(scan)]
        yield from look_behind(mesh, slots, _doubted(produce))
    located = yield from locate(mesh, _admitted(produce))
    for wanted, error in located.homeless:
        produce.refuse((wanted.topic, wanted.partition), error)
    places = _not_overtaking(produce, located.places)
    _patch_visits(produce)
    outcomes: list[tuple[Place, list[Wanted[Item]], Outcome]] = []
    if places:
        calls = [_call(produce, place, parts) for place, parts in places.items()]
        answers = yield Ask(tuple(calls))
        outcomes = [(place, parts, o) for (place, parts), o in zip(places.items(), answers, strict=True)]
    if scan.acks == 0:
        return _without_acks(produce, outcomes)
    whole = not produce.results and len(outcomes) == 1
    for place, parts, outcome in outcomes:
        response = yield from _take(produce, place, parts, outcome)
        if whole and response is not None and _is_clean(response) and _is_of_version(outcome, produce.request.version):
            return outcome
    return _answer(produce)


def _named(produce: _Produce) -> Generator[Command, Any, ProduceScan]:
    """The scan with names in the place of ids. Topics that nobody knows are taken out."""
    names = yield from topic_names(produce.mesh, [topic.topic_id for topic in produce.scan.topics])
    produce.strange = [topic for topic in produce.scan.topics if topic.topic_id not in names]
    known = [t._replace(name=names[t.topic_id]) for t in produce.scan.topics if t.topic_id in names]
    produce.scan = produce.scan._replace(topics=known)
    return produce.scan


def _sole_leader(produce: _Produce) -> Place | None:
    """The leader of all partitions, if there is one and nothing stands against passing the request as it is: the case
    of almost every request, found without opening a batch."""
    if produce.strange or produce.closed or produce.refusals.any(produce.mesh.now):
        return None
    table, clusters = produce.mesh.table, produce.mesh.clusters
    place: Place | None = None
    for topic in produce.scan.topics:
        route = table.route(topic.name)
        if route is None or route.visit != 1:
            return None
        knowledge = clusters[route.cluster]
        for partition in topic.partitions:
            leader = knowledge.leader(topic.name, partition.partition)
            if leader is None or (place is not None and place != (route.cluster, leader)):
                return None
            if route.before is not None and (
                produce.mesh.memory.passages or is_open(topic.name, partition.partition, route, produce.mesh)
            ):
                return None
            if place is None:
                place = Place(route.cluster, leader)
    if place is not None and len(produce.mesh.session.producing) > 1:
        slots = ((topic.name, partition.partition) for topic in produce.scan.topics for partition in topic.partitions)
        if any(produce.overtakes(*slot, place) for slot in slots):
            return None
    return place


def _partitions(scan: ProduceScan) -> Iterator[Wanted[Item]]:
    for topic in scan.topics:
        for partition in topic.partitions:
            yield Wanted(topic.name, partition.partition, (topic, partition))


def _admitted(produce: _Produce) -> Iterator[Wanted[Item]]:
    """The partitions that may go on; the others are refused here."""
    for wanted in _partitions(produce.scan):
        slot = (wanted.topic, wanted.partition)
        batch = _note_batch(produce, wanted)
        if wanted.topic in produce.closed:
            produce.refuse(slot, produce.closed[wanted.topic])
        elif batch is not None and not _admits(produce, slot, batch):
            produce.refuse(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif batch is not None and (error := _at_seam(produce, slot, batch)):
            produce.refuse(slot, error)
        else:
            yield wanted


def _at_seam(produce: _Produce, slot: Slot, batch: BatchHeader) -> ErrorCode | None:
    """Why a batch may not pass the seam of a topic that has moved."""
    key, session = _key(slot, batch), produce.mesh.session
    if produce.mesh.memory.passages.is_overtaking(key, batch.base_sequence, session):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    match judged(*slot, batch, produce.mesh):
        case Verdict.REPEAT:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        case Verdict.TOO_EARLY:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return None


def _not_overtaking(produce: _Produce, located: Mapping[Place, list[Wanted[Item]]]) -> dict[Place, list[Wanted[Item]]]:
    """What may be sent now; a batch that would overtake an earlier one of its connection is refused."""
    places: dict[Place, list[Wanted[Item]]] = {}
    for place, parts in located.items():
        for wanted in parts:
            slot = (wanted.topic, wanted.partition)
            if slot in produce.batches and produce.overtakes(*slot, place):
                produce.refuse(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                produce.places[slot] = place
                places.setdefault(place, []).append(wanted)
    return places


def _admits(produce: _Produce, slot: Slot, batch: BatchHeader) -> bool:
    records = batch.last_offset_delta + 1
    return produce.refusals.admits(_key(slot, batch), batch.base_sequence, records, produce.mesh.now)


def _doubted(produce: _Produce) -> set[Slot]:
    """Partitions whose producer comes back after a batch without an answer; from here on it is in no doubt."""
    doubts = produce.mesh.memory.doubts
    found: set[Slot] = set()
    for wanted in _partitions(produce.scan) if doubts.any(produce.mesh.now) else ():
        slot = (wanted.topic, wanted.partition)
        batch = _note_batch(produce, wanted)
        if batch is not None and doubts.get(_key(slot, batch), produce.mesh.now):
            doubts.drop(_key(slot, batch))
            found.add(slot)
    return found


def _note_batch(produce: _Produce, wanted: Wanted[Item]) -> BatchHeader | None:
    """The partition's first batch, if its producer numbers its batches."""
    noted = produce.batches.get((wanted.topic, wanted.partition))
    if noted is not None:
        return noted
    _, partition = wanted.item
    try:
        batch = partition.first_batch(produce.request.frame)
    except WireError:  # not a batch: its broker will say so
        return None
    if not batch.is_idempotent:
        return None
    produce.batches[wanted.topic, wanted.partition] = batch
    return batch


def _patch_visits(produce: _Produce) -> None:
    if produce.scan.transactional_id is not None:
        return
    frame = produce.request.frame
    for topic in produce.scan.topics:
        route = produce.mesh.table.route(topic.name)
        if route is None or route.visit == 1:
            continue
        for partition in topic.partitions:
            batch = produce.batches.get((topic.name, partition.partition))
            if batch is not None:
                producer_id = visit_producer_id(batch.producer_id, route.visit)
                for start in partition.batch_starts(frame):
                    patch_producer_id(frame, start, producer_id)


def _call(produce: _Produce, place: Place, parts: list[Wanted[Item]] | None) -> Call:
    """What goes to one leader: these parts, or all of the request."""
    request, scan = produce.request, produce.scan
    version = highest_version(produce.mesh, place.cluster, ApiKey.PRODUCE, min(request.version, NAMES_UNTIL))
    message: Verbatim | Body
    whole = parts is None or len(parts) == sum(len(topic.partitions) for topic in scan.topics)
    if whole and version == request.version:
        message = Verbatim(request.frame)
    else:
        topics: list[tuple[ProduceTopic, list[ProducePartition]]] = []
        for wanted in _partitions(scan) if parts is None else parts:
            topic, partition = wanted.item
            if not topics or topics[-1][0] is not topic:
                topics.append((topic, []))
            topics[-1][1].append(partition)
        message = Body(tuple(split_produce(request.frame, scan, topics, version)))
    return Call(
        place.cluster,
        message,
        version,
        Broker(place.broker_id),
        Lane.PRODUCE,
        timeout_s=max(0, scan.timeout_ms) / 1000 + CALL_TIMEOUT_S,
        raw=True,
        no_answer=scan.acks == 0,
        api_key=ApiKey.PRODUCE,
    )


def _take(
    produce: _Produce, place: Place, parts: list[Wanted[Item]], outcome: Outcome
) -> Generator[Command, Any, ProduceResponse | None]:
    """Note what one leader answered, partition by partition; gives the answer, if there was one."""
    response = outcome.decode(ProduceResponse) if isinstance(outcome, RawResponse) else None
    told: dict[Slot, PartitionProduceResponse] = {}
    if response is not None:
        told = {(t.name, p.index): p for t in response.responses for p in t.partition_responses}
    stale: set[str] = set()
    for wanted in parts:
        slot = (wanted.topic, wanted.partition)
        result = told.get(slot)
        if result is None:
            never_sent = isinstance(outcome, Unreachable) and outcome.never_sent
            produce.refuse(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER if never_sent else MAYBE_WRITTEN)
            stale.add(wanted.topic)
        else:
            result.current_leader.leader_id = result.current_leader.leader_epoch = -1
            if produce.scan.transactional_id is not None:
                result.error_code = bearable(result.error_code, produce.request.version)
            if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and slot in produce.batches:
                result.error_code = MAYBE_WRITTEN
            produce.results[slot] = result
            if result.error_code in LEADER_ERRORS or result.error_code == MAYBE_WRITTEN:
                produce.not_written(slot)
                stale.add(wanted.topic)
    if stale:
        yield Stale(place.cluster, tuple(stale))
    return response


def _passing(produce: _Produce, outcome: Outcome) -> Answer | None:
    """What may go to the client without being opened; bytes that can't be read are for the decoder to refuse."""
    if not isinstance(outcome, RawResponse):
        return None
    place = (outcome.frame, outcome.version, outcome.body_offset, len(outcome.frame))
    try:
        if outcome.version == produce.request.version:
            return outcome if produce_response_is_clean(*place) else None
        if produce.request.version < IDS_SINCE:
            return None
        pieces = with_topic_ids(*place, {topic.name.encode(): topic.topic_id for topic in produce.scan.topics})
    except WireError:
        return None
    return None if pieces is None else Body(tuple(pieces))


def _is_of_version(outcome: Outcome, version: int) -> TypeGuard[RawResponse]:
    return isinstance(outcome, RawResponse) and outcome.version == version


def _is_clean(response: ProduceResponse) -> bool:
    """Nothing in it speaks of the cluster behind."""
    return not response.node_endpoints and not any(
        partition.error_code for topic in response.responses for partition in topic.partition_responses
    )


def _answer(produce: _Produce) -> Answer:
    if produce.scan.acks == 0:
        failed = sorted({slot[0] for slot, result in produce.results.items() if result.error_code})
        failed += [f"with id {topic.topic_id.hex()}" for topic in produce.strange]
        return Close(f"Produce with acks 0 could not be sent, topics {', '.join(failed)}") if failed else NoAnswer()
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[produce.results[topic.name, p.partition] for p in topic.partitions],
            )
            for topic in produce.scan.topics
        ]
        + [
            TopicProduceResponse(topic_id=topic.topic_id, partition_responses=_unknown(topic))
            for topic in produce.strange
        ]
    )


def _unknown(topic: ProduceTopic) -> list[PartitionProduceResponse]:
    return [
        PartitionProduceResponse(index=partition.partition, error_code=ErrorCode.UNKNOWN_TOPIC_ID, base_offset=-1)
        for partition in topic.partitions
    ]


def _without_acks(produce: _Produce, outcomes: list[tuple[Place, list[Wanted[Item]], Outcome]]) -> Answer:
    for _, parts, outcome in outcomes:
        if not isinstance(outcome, Sent):
            for wanted in parts:
                produce.refuse((wanted.topic, wanted.partition), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return _answer(produce)
