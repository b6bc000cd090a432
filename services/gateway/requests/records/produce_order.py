"""Which batches of a Produce may be sent now, and which have to wait for others of their producer.

A broker that does not know a producer takes the producer's first batch for the beginning, whatever its sequence number.
The batch before this one is then refused for ever. So a batch waits until the batches before it are answered, or goes
to the same broker behind them.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.gateway.requests.memory import OnItsWay
from services.gateway.requests.placement import LEADER_ERRORS, Place, Wanted
from services.gateway.requests.plan import Command, MeshView, Request
from services.gateway.requests.records.producer_memory import SETTLED_SECONDS, BatchKey, Doubt, Refusals, batch_key
from services.gateway.requests.records.seams import (
    Verdict,
    has_gap,
    is_open,
    judged,
    look_behind,
    look_further_back,
    seam_of,
)
from services.gateway.requests.records.stitched import Part, is_stitched, stretches
from services.gateway.requests.transactions.records import MOVED, Closed, in_parts_left
from services.gateway.wire.batches import BatchHeader, comes_after
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import PartitionProduceResponse
from services.gateway.wire.primitives import WireError
from services.gateway.wire.scanner import ProducePartition, ProduceScan, ProduceTopic

Item = tuple[ProduceTopic, ProducePartition]
Slot = tuple[str, int]
"""Topic and partition."""
MAYBE_WRITTEN = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
"""The error for a batch that has no answer: clients send the batch again as it is. On NOT_LEADER_OR_FOLLOWER librdkafka
takes the batch for not written. It may cut the records into other batches, which a broker that has the first batch
refuses for ever."""


@dataclass(slots=True, eq=False)
class Producing:
    """One request in progress."""

    request: Request
    mesh: MeshView
    scan: ProduceScan
    validates: bool = True
    """Whether rules of validation count."""
    results: dict[Slot, PartitionProduceResponse] = field(default_factory=dict)
    strange: list[ProduceTopic] = field(default_factory=list)
    """Topics of the request, but not of the scan: no cluster knows their ids."""
    batches: dict[Slot, BatchHeader] = field(default_factory=dict)
    """First batch of each partition whose producer numbers its batches, as the client sent it."""
    unsettled: set[Slot] = field(default_factory=set)
    """Partitions whose last cluster may not have worked off all earlier batches yet, or does not report which batches
    it has. Also those whose records nobody had time to validate, or that can't be protected now."""
    unsent: set[Slot] = field(default_factory=set)
    """Partitions whose batch was refused before it was sent."""
    in_parts_left: set[Slot] = field(default_factory=set)
    """Partitions whose batch the request's transaction has already, on the cluster that their topic has left."""
    closed: Closed = field(default_factory=dict)
    """Topics that the request's transaction may not write to."""
    invalid: dict[Slot, PartitionProduceResponse] = field(default_factory=dict)
    """The answers for batches that rules about records refuse."""
    throttle_ms: int = 0
    """The longest throttle time of the brokers."""
    sole: Place | None = None
    """The broker to which the whole request was sent, if it is one broker ..."""
    took: dict[Slot, float] = field(default_factory=dict)
    """The seconds from the call to its answer, while a cluster is rehearsed."""
    places: dict[Slot, Place] = field(default_factory=dict)
    """... and otherwise the broker of each partition."""
    _stitched: bool | None = None
    _wanted: tuple[ProduceScan, list[Wanted[Item]]] | None = None

    @property
    def wanted(self) -> list[Wanted[Item]]:
        """The partitions of the scan, in the client's order."""
        if self._wanted is None or self._wanted[0] is not self.scan:
            scan = self.scan
            self._wanted = scan, [Wanted(t.name, p.partition, (t, p)) for t in scan.topics for p in t.partitions]
        return self._wanted[1]

    @property
    def may_all_go_on(self) -> bool:
        """Whether no part of the request is known to be refused."""
        return not (self.strange or self.closed or self.invalid or self.unsettled)

    @property
    def is_stitched(self) -> bool:
        """Whether clients see other offsets than the clusters answer with."""
        if self._stitched is None:
            mesh, logs = self.mesh, self.mesh.memory.stitches.logs
            routes = ((t.name, mesh.table.route(t.name)) for t in self.scan.topics if t.name in logs)
            self._stitched = any(
                route is not None and is_stitched(topic, route, mesh.memory) for topic, route in routes
            )
            if self._stitched:
                mesh.memory.on_part(Part.PRESENT)
        return self._stitched

    def show(self, result: PartitionProduceResponse, topic: str) -> None:
        """Gives the answer of a cluster the offsets of clients."""
        parts = stretches(topic, result.index, self.mesh) if self.is_stitched else ()
        if parts:
            result.base_offset = parts[-1].shown(result.base_offset)
            result.log_start_offset = parts[-1].shown(result.log_start_offset)

    def is_undecided(self, topic: str) -> bool:
        """Whether the topic's cluster is not known before a move has ended."""
        return self.mesh.undecided is not None and self.mesh.undecided(topic)

    def sent_to(self, topic: str, partition: int) -> Place | None:
        if self.sole is None:
            return self.places.get((topic, partition))
        found = any(t.name == topic and any(p.partition == partition for p in t.partitions) for t in self.scan.topics)
        return self.sole if found else None

    def others_elsewhere(self, place: Place) -> list[OnItsWay]:
        """Requests of this connection that are in progress and have not gone to `place` as a whole."""
        return [other for other in self.mesh.session.producing if other is not self and other.sole != place]

    def is_followed(self, topic: str, partition: int) -> bool:
        """Whether a later request of this connection has sent a batch for the partition."""
        under_way = self.mesh.session.producing
        later = under_way[under_way.index(self) + 1 :]
        return any(other.sent_to(topic, partition) is not None for other in later)

    def put_off_batch(self, wanted: Wanted[Item]) -> None:
        """The batch can't be looked into now: the client has to send it again, in its order if it is numbered."""
        slot = (wanted.topic, wanted.partition)
        if note_batch(self, wanted) is not None:
            self.unsettled.add(slot)
        else:
            self.invalid[slot] = PartitionProduceResponse(slot[1], ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    @property
    def refusals(self) -> Refusals:
        return self.mesh.memory.refusals

    def refuse(self, slot: Slot, error: int) -> None:
        """Answers a partition with an error of the gateway itself."""
        self.results[slot] = PartitionProduceResponse(index=slot[1], error_code=error, base_offset=-1)
        if error in LEADER_ERRORS or error == MAYBE_WRITTEN:
            self.not_written(slot)

    def not_written(self, slot: Slot) -> None:
        batch = self.batches.get(slot)
        if batch is not None:
            if self.results[slot].error_code == MAYBE_WRITTEN and slot not in self.unsent:
                self._doubt(slot, batch)
            answered_by = self.mesh.now + max(0, self.scan.timeout_ms) / 1000
            self.refusals.refuse(batch_key(*slot, batch), batch.base_sequence, answered_by)

    def _doubt(self, slot: Slot, batch: BatchHeader) -> None:
        route, doubts, key = self.mesh.table.route(slot[0]), self.mesh.memory.doubts, batch_key(*slot, batch)
        if route is not None:
            now = self.mesh.clock()  # the batch may still be in its broker's queue, however long ago it was sent
            before = doubts.get(key, now)
            sequence = batch.base_sequence
            if before is not None and comes_after(before.sequence, sequence):
                sequence = before.sequence
            doubts.put(key, Doubt(route.stay, now, sequence), now)

    def send_back(self, slot: Slot) -> None:
        """Refuses a batch that must not be sent now.

        An earlier copy of the batch that was sent without an answer may be written all the same.
        """
        self.unsent.add(slot)
        in_doubt = self.is_in_doubt(slot, self.batches[slot])
        self.refuse(slot, MAYBE_WRITTEN if in_doubt else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def is_in_doubt(self, slot: Slot, batch: BatchHeader) -> bool:
        """Whether an earlier copy of the batch was sent, and got no answer."""
        doubt = self.mesh.memory.doubts.get(batch_key(*slot, batch), self.mesh.now)
        return doubt is not None and not comes_after(batch.base_sequence, doubt.sequence)


def enter_seams(produce: Producing) -> list[BatchKey]:
    """Registers the batches that cross a seam, in the order in which requests start."""
    crossing: list[BatchKey] = []
    for wanted in produce.wanted if produce.scan.acks != 0 else ():
        slot = (wanted.topic, wanted.partition)
        route = produce.mesh.table.route(wanted.topic)
        if route is not None and is_open(*slot, route, produce.mesh):
            batch = note_batch(produce, wanted)
            if batch is not None:
                crossing.append(batch_key(*slot, batch))
                produce.mesh.memory.passages.enter(crossing[-1], produce, batch.base_sequence, produce.mesh.session)
    return crossing


def admitted(produce: Producing) -> Iterator[Wanted[Item]]:
    """The partitions that may go on; the others are refused here."""
    for wanted in produce.wanted:
        slot = (wanted.topic, wanted.partition)
        batch = note_batch(produce, wanted)
        if slot in produce.invalid:
            if batch is not None:
                _admits(produce, slot, batch)  # it has come again, if it was waited for
            produce.results[slot] = produce.invalid[slot]
        elif wanted.topic in produce.closed:
            produce.refuse(slot, produce.closed[wanted.topic])
        elif produce.is_undecided(wanted.topic):
            if batch is None:
                produce.refuse(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                produce.send_back(slot)
        elif batch is None:
            yield wanted
        elif slot in produce.unsettled or not _admits(produce, slot, batch):
            produce.send_back(slot)
        elif _may_be_in_another_part(produce, slot, batch):
            produce.refuse(slot, MOVED)
        else:
            match _at_seam(produce, slot, batch):
                case Verdict.PASSES:
                    yield wanted
                case Verdict.REPEAT:
                    produce.refuse(slot, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
                case Verdict.TOO_EARLY:
                    produce.send_back(slot)


def _may_be_in_another_part(produce: Producing, slot: Slot, batch: BatchHeader) -> bool:
    """Whether a transaction may have this batch already, on the cluster that its topic has left meanwhile.

    A commit would make both copies valid. Only the transaction's coordinator there knows the producer by the batch's
    id, so the gateway can't look for the batch as for others (`seams`). The producer has to abort.
    """
    doubts, key = produce.mesh.memory.doubts, batch_key(*slot, batch)
    if slot not in produce.in_parts_left:
        doubt, route = doubts.get(key, produce.mesh.now), produce.mesh.table.route(slot[0])
        if produce.scan.transactional_id is None or doubt is None or route is None or doubt.stay == route.stay:
            return False
        if comes_after(batch.base_sequence, doubt.sequence):
            return False
    doubts.drop(key)  # by the first protocol the next transaction may use the same sequence
    return True


def _at_seam(produce: Producing, slot: Slot, batch: BatchHeader) -> Verdict:
    """The verdict on a batch at the seam of a topic that has moved."""
    key, session = batch_key(*slot, batch), produce.mesh.session
    if produce.mesh.memory.passages.is_overtaking(key, batch.base_sequence, session):
        return Verdict.TOO_EARLY
    return judged(*slot, batch, produce.mesh)


def not_overtaking(produce: Producing, located: Mapping[Place, list[Wanted[Item]]]) -> dict[Place, list[Wanted[Item]]]:
    """The parts that may be sent now; a batch that would overtake an earlier one of its connection is refused."""
    places: dict[Place, list[Wanted[Item]]] = {}
    for place, parts in located.items():
        for wanted in parts:
            slot = (wanted.topic, wanted.partition)
            if slot in produce.batches and produce.mesh.session.overtakes(*slot, place):
                produce.send_back(slot)
            else:
                produce.places[slot] = place
                places.setdefault(place, []).append(wanted)
    return places


def _admits(produce: Producing, slot: Slot, batch: BatchHeader) -> bool:
    records = batch.last_offset_delta + 1
    return produce.refusals.admits(batch_key(*slot, batch), batch.base_sequence, records, produce.mesh.now)


def look_for_stored(produce: Producing) -> Generator[Command, Any, None]:
    """Asks the clusters that the request's topics have left which of its batches they have."""
    scan, mesh = produce.scan, produce.mesh
    back = come_back(produce)
    slots = [(wanted.topic, wanted.partition) for wanted in produce.wanted]
    settled = [slot for slot in slots if slot not in produce.unsettled]
    produce.unsettled |= yield from look_behind(mesh, settled, back.last, produce.batches)
    produce.unsettled |= yield from look_further_back(back.further, mesh)
    if scan.transactional_id is not None:
        produce.in_parts_left = yield from in_parts_left(produce.batches, scan.transactional_id, mesh)


@dataclass(slots=True)
class Back:
    """Partitions whose producers come back after a batch without an answer, or with a gap before their batch."""

    last: set[Slot] = field(default_factory=set)
    """Partitions for which the topic's last stay has to be asked again, ..."""
    further: dict[BatchKey, Doubt] = field(default_factory=dict)
    """... and batches for which an earlier stay has to be asked."""


def come_back(produce: Producing) -> Back:
    """The producers that come back.

    After a batch without an answer a producer counts once in each stay of the topic. If the topic has moved meanwhile
    and it is too soon for any cluster to report the batch, the partition is `unsettled`.
    """
    mesh, doubts = produce.mesh, produce.mesh.memory.doubts
    found = Back()
    for wanted in produce.wanted:
        slot = (wanted.topic, wanted.partition)
        batch, route = note_batch(produce, wanted), mesh.table.route(wanted.topic)
        if batch is None or route is None:
            continue
        key = batch_key(*slot, batch)
        doubt = doubts.get(key, mesh.now)
        if doubt is None or doubt.looked_from == route.stay:
            if has_gap(*slot, batch, mesh):
                found.last.add(slot)
            continue
        stayed = doubt.stay == route.stay
        if mesh.now < doubt.since + SETTLED_SECONDS and not stayed:
            produce.unsettled.add(slot)
        elif stayed or doubt.stay == route.before:
            doubts.replace(key, doubt._replace(looked_from=route.stay))
            found.last.add(slot)
            if not stayed:
                mesh.memory.seams.ask(seam_of(*slot, route, doubt.stay), mesh.now)
        else:
            found.further[key] = doubt
    return found


def note_batch(produce: Producing, wanted: Wanted[Item]) -> BatchHeader | None:
    """The partition's first batch, if its producer numbers its batches."""
    noted = produce.batches.get((wanted.topic, wanted.partition))
    if noted is not None:
        return noted
    _, partition = wanted.item
    try:
        batch = partition.first_batch(produce.request.frame)
    except WireError:  # not a batch: its broker will report that
        return None
    if not batch.is_idempotent:
        return None
    produce.batches[wanted.topic, wanted.partition] = batch
    return batch
