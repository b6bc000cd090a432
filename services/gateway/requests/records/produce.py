"""Produce: records to the leaders of their partitions, untouched but for rules about them (`opening`).

Theory of operation
1. A request whose partitions all have one leader passes as it came; its answer too, unless it reports an error. Any
   other request is cut into one for each leader from slices of its own bytes. The answer has the client's order, and
   consists of slices of the leaders' answers if they report no error. Requests to clusters name topics, so from version
   13 on ids are exchanged for names and back (`topic_ids`). A cluster that is older than the client gets its own newest
   version. Batches are the same in all these versions. The client gets the longest throttle time of the leaders.
2. The gateway itself answers a partition with one of two codes. NOT_LEADER_OR_FOLLOWER means that the cluster is out of
   reach or the leader not known; UNKNOWN_TOPIC_OR_PARTITION, that there is no rule or no such topic. Every client tries
   again after both; other codes are fatal to some clients (protocol-ideas 1). A batch that was sent and got no answer
   gets neither code, but `MAYBE_WRITTEN`. So does a batch whose leader has stepped down meanwhile, and answers
   NOT_LEADER_OR_FOLLOWER: the leader's followers may have the batch. A topic whose move is undecided
   (`MeshView.undecided`) is answered with NOT_LEADER_OR_FOLLOWER too.
3. After a refused batch, later batches of its producer and partition are refused until it comes again: `produce_order`.
4. With acks 0 no client waits for an answer. If a batch can't be sent, or a broker that is not the leader ends its own
   connection (`Lanes.on_unheard`), the gateway closes the client's connection, the only sign that such a client sees.
5. Batches that a topic's last cluster has stored already are not stored again, and no batch arrives at the new cluster
   out of order (`seams`).
6. On a topic's second and later visits to a cluster the producer ids of its batches are patched (`wire.batches`).
   Transactional batches keep their producer id, because their coordinator knows this id.
7. A transaction writes to topics of its own cluster, or to topics of other clusters under the identity that it has
   there (`transactions`).
8. A broker that verifies a Produce and a TxnOffsetCommit of one transaction at once refuses the Produce with
   NOT_ENOUGH_REPLICAS (KIP-890). A direct client sends both on one connection, where they follow each other; here each
   has its own lane. So the gateway sends such a batch once more, unless a later one of the partition is on its way."""

from collections.abc import Generator
from typing import Any

from services.gateway.requests.auditing.batches import tell_audit
from services.gateway.requests.placement import LEADER_ERRORS, Place, Wanted, locate
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    Ask,
    Body,
    Broker,
    Call,
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
from services.gateway.requests.records.acknowledging import note_acknowledged
from services.gateway.requests.records.opening import opened
from services.gateway.requests.records.produce_answers import answer_of, is_clean, is_of_version, joined, passing
from services.gateway.requests.records.produce_order import (
    MAYBE_WRITTEN,
    Item,
    Producing,
    Slot,
    admitted,
    enter_seams,
    look_for_stored,
    not_overtaking,
    note_batch,
)
from services.gateway.requests.records.seams import is_open
from services.gateway.requests.rehearsing.produces import tell_rehearsals, timed
from services.gateway.requests.topic_ids import topic_names
from services.gateway.requests.traffic.calls import begun
from services.gateway.requests.transactions.records import admit, bearable
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import BatchHeader, patch_producer_id, visit_producer_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from services.gateway.wire.scanner import ProducePartition, ProduceScan, ProduceTopic, scan_produce, split_produce
from services.gateway.wire.scanner.bounds import IDS_SINCE

NAMES_UNTIL = IDS_SINCE - 1
"""The last version that names topics, and so the newest that the gateway speaks to clusters."""


def handle(request: Request, mesh: MeshView, *, validates: bool = True) -> Plan:
    scan = scan_produce(request.frame, request.version, request.header.body_offset, len(request.frame))
    produce = Producing(request, mesh, scan, validates)
    counted = begun(request, mesh)
    mesh.session.producing.append(produce)
    try:
        answer = yield from _carried(produce)
    finally:
        mesh.session.producing.remove(produce)
    if counted is not None:
        counted.produced(produce, answer)
    if mesh.memory.audit is not None:
        tell_audit(mesh.memory.audit, produce, answer)
    if mesh.memory.rehearsals and validates:
        tell_rehearsals(produce, answer)
    if mesh.memory.acknowledged.by_topic:
        note_acknowledged(produce, answer)
    return answer


def _carried(produce: Producing) -> Plan:
    request, mesh, scan = produce.request, produce.mesh, produce.scan
    if request.version >= IDS_SINCE:
        scan = yield from _named(produce)
    for topic in scan.topics:
        mesh.session.uses.produced.note(topic.name)
    yield from opened(produce, lambda letters: handle(letters, mesh, validates=False))
    request, scan = produce.request, produce.scan
    if scan.transactional_id is not None:
        for wanted in produce.wanted:  # afterwards the batches have another identity
            note_batch(produce, wanted)
        produce.closed = yield from admit(request.frame, scan, mesh)
    sole = produce.sole = _sole_leader(produce)
    if sole is not None:
        (outcome,) = yield Ask((_call(produce, sole, None),))
        if scan.acks == 0 and isinstance(outcome, Sent):
            return NoAnswer()
        whole = passing(produce, outcome)
        if whole is not None:
            return whole
        for wanted in produce.wanted:
            note_batch(produce, wanted)
        if scan.acks == 0:
            return _without_acks(produce, [(sole, produce.wanted, outcome)])
        yield from _take(produce, sole, produce.wanted, outcome)
        return answer_of(produce)
    crossing = enter_seams(produce)
    try:
        return (yield from _in_parts(produce))
    finally:
        for key in crossing:
            mesh.memory.passages.leave(key, produce)


def ended_astray(
    request: Request,
    mesh: MeshView,
    scan: ProduceScan,
    place: Place,
    batches: dict[Slot, BatchHeader],
    outcome: Outcome,
) -> Plan:
    """The plan of a request that was forwarded to `place` without one, and was not simply stored.

    `batches`: the batches whose producers number them; `request` has only its own header left.
    """
    produce = Producing(request, mesh, scan, batches=batches)
    yield from _take(produce, place, produce.wanted, outcome)
    answer = answer_of(produce)
    if mesh.memory.acknowledged.by_topic:
        note_acknowledged(produce, answer)
    return answer


def _in_parts(produce: Producing) -> Plan:
    """Sends the request partition by partition."""
    scan, mesh = produce.scan, produce.mesh
    if scan.acks != 0:
        yield from look_for_stored(produce)
    located = yield from locate(mesh, admitted(produce))
    for wanted, error in located.homeless:
        produce.refuse((wanted.topic, wanted.partition), error)
    places = not_overtaking(produce, located.places)
    _patch_visits(produce)
    outcomes: list[tuple[Place, list[Wanted[Item]], Outcome]] = []
    if places:
        calls = [_call(produce, place, parts) for place, parts in places.items()]
        answers = yield Ask(tuple(calls))
        outcomes = [(place, parts, o) for (place, parts), o in zip(places.items(), answers, strict=True)]
    if scan.acks == 0:
        return _without_acks(produce, outcomes)
    one = joined(produce, [outcome for _, _, outcome in outcomes])
    if one is not None:
        return one
    whole = not produce.results and len(outcomes) == 1 and not produce.is_stitched
    for place, parts, outcome in outcomes:
        response = yield from _take(produce, place, parts, outcome)
        if whole and response is not None and is_clean(response) and is_of_version(outcome, produce.request.version):
            return outcome
    return answer_of(produce)


def _named(produce: Producing) -> Generator[Command, Any, ProduceScan]:
    """The scan with names in the place of ids. Topics with unknown ids are taken out."""
    names = yield from topic_names(produce.mesh, [topic.topic_id for topic in produce.scan.topics])
    produce.strange = [topic for topic in produce.scan.topics if topic.topic_id not in names]
    known = [t.named(names[t.topic_id]) for t in produce.scan.topics if t.topic_id in names]
    produce.scan = produce.scan.of(known)
    return produce.scan


def _sole_leader(produce: Producing) -> Place | None:
    """The one leader to which the request may pass as it is: the case of almost every request; opens no batch."""
    if not produce.may_all_go_on or produce.refusals.any(produce.mesh.now):
        return None
    table, clusters = produce.mesh.table, produce.mesh.clusters
    place: Place | None = None
    for topic in produce.scan.topics:
        route = table.route(topic.name)
        if route is None or route.visit != 1 or produce.is_undecided(topic.name):
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
    if place is not None and produce.others_elsewhere(place):
        slots = ((topic.name, partition.partition) for topic in produce.scan.topics for partition in topic.partitions)
        if any(produce.mesh.session.overtakes(*slot, place) for slot in slots):
            return None
    return place


def _patch_visits(produce: Producing) -> None:
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


def _call(produce: Producing, place: Place, parts: list[Wanted[Item]] | None) -> Call:
    """The call to one leader: with these parts, or with all of the request."""
    request, scan = produce.request, produce.scan
    version = highest_version(produce.mesh, place.cluster, ApiKey.PRODUCE, min(request.version, NAMES_UNTIL))
    message: Verbatim | Body
    whole = parts is None or len(parts) == sum(len(topic.partitions) for topic in scan.topics)
    if whole and version == request.version:
        message = Verbatim(request.frame)
    else:
        topics: list[tuple[ProduceTopic, list[ProducePartition]]] = []
        for wanted in produce.wanted if parts is None else parts:
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
        on_answer=timed(produce, parts) if produce.mesh.memory.rehearsals else None,
    )


def _take(
    produce: Producing, place: Place, parts: list[Wanted[Item]], outcome: Outcome, *, repeats: bool = True
) -> Generator[Command, Any, ProduceResponse | None]:
    """Notes one leader's answer, partition by partition; returns the answer, if there was one."""
    response = outcome.decode(ProduceResponse) if isinstance(outcome, RawResponse) else None
    told: dict[Slot, PartitionProduceResponse] = {}
    if response is not None:
        produce.throttle_ms = max(produce.throttle_ms, response.throttle_time_ms)
        told = {(t.name, p.index): p for t in response.responses for p in t.partition_responses}
    unverified = _unverified(produce, told) if repeats else frozenset()
    again = [wanted for wanted in parts if (wanted.topic, wanted.partition) in unverified]
    if again:
        (second,) = yield Ask((_call(produce, place, again),))
        yield from _take(produce, place, again, second, repeats=False)
    stale: set[str] = set()
    for wanted in parts:
        slot = (wanted.topic, wanted.partition)
        if slot in unverified:
            continue
        result = told.get(slot)
        if result is None:
            never_sent = isinstance(outcome, Unreachable) and outcome.never_sent
            produce.refuse(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER if never_sent else MAYBE_WRITTEN)
            stale.add(wanted.topic)
        else:
            result.current_leader.leader_id = result.current_leader.leader_epoch = -1
            if produce.scan.transactional_id is not None:
                id_ = produce.scan.transactional_id
                result.error_code = bearable(result.error_code, wanted.topic, place.cluster, id_, produce.mesh)
            if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and slot in produce.batches:
                result.error_code = MAYBE_WRITTEN
            produce.results[slot] = result
            produce.show(result, wanted.topic)
            if result.error_code in LEADER_ERRORS or result.error_code == MAYBE_WRITTEN:
                produce.not_written(slot)
                stale.add(wanted.topic)
    if stale:
        yield Stale(place.cluster, tuple(stale))
    return response


def _unverified(produce: Producing, told: dict[Slot, PartitionProduceResponse]) -> frozenset[Slot]:
    """Partitions of a transaction whose leader refused the batch unappended, and that no later batch follows."""
    if produce.scan.transactional_id is None:
        return frozenset()
    refused = (slot for slot, result in told.items() if result.error_code == ErrorCode.NOT_ENOUGH_REPLICAS)
    return frozenset(slot for slot in refused if not produce.is_followed(*slot))


def _without_acks(produce: Producing, outcomes: list[tuple[Place, list[Wanted[Item]], Outcome]]) -> Answer:
    for _, parts, outcome in outcomes:
        if not isinstance(outcome, Sent):
            for wanted in parts:
                produce.refuse((wanted.topic, wanted.partition), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return answer_of(produce)
