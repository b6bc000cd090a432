"""The seam of a topic that has moved: the last stored batch of each producer when the topic left its last cluster.

A write whose answer was lost (a broker or a gateway died, a connection broke) is repeated by the client. If the topic
has moved meanwhile, its new cluster does not know the producer and would store the records a second time.

Theory of operation
1. The gateway has to know the partition's producers on the last cluster: id, epoch, last sequence. If a topic moves
   with its records, they come with the switch (`handover`). Otherwise the first Produce to the partition asks for them
   (DescribeProducers). All up to that sequence is stored there, if the replicas in sync have all that the leader has
   (`replication`). Until then the last cluster has not answered (6).
2. A batch that is not newer than the last stored one is a repeat. The gateway answers a repeat with
   DUPLICATE_SEQUENCE_NUMBER and does not send it: idempotent producers take this code as success (protocol-ideas 8).
   Transactional batches bear the id that a coordinator gave, which other clusters do not know. If such a batch may be a
   repeat, its producer has to abort (`produce_order`, `transactions.records`).
3. A batch without an answer may reach its broker late. A gateway says HELD only when brokers have had time to store
   such batches, so other gateways ask after that (`downstream.discovery`). A topic may also move without HELD. So the
   gateway that sent the batch asks again when the producer comes back. Until some seconds have passed
   (`SETTLED_SECONDS`), the gateway refuses the producer's batches. The gateway asks the cluster to which it sent the
   batch: the topic may have moved on from its next cluster, or come back as another visit.
4. A producer's next batch ends its seam. A later batch that comes first, on another connection or to another gateway,
   is refused. The new cluster would take it for the producer's beginning, and refuse the next batch for ever. If the
   next batch never comes, the later one may pass after `GAP_SECONDS`. A producer that has begun on the new cluster, by
   another gateway or before this gateway started, has skipped no batch. So the gateway asks the new cluster too, again
   whenever the later batch comes, and without an answer it refuses no batch. The gateway gives up seams of producers
   that do not come after `SEAM_SECONDS`.
5. As long as batches pass a seam, no batch overtakes an earlier one of its producer that is in progress on another
   connection (`Passages`).
6. Gateways share nothing: each gateway asks, also a gateway that starts after the move. A last cluster that can't be
   asked closes the seam, with a log line: a move away from a dead cluster must not wait (`Seams.give_up`). A cluster
   that can't answer now is asked again as producers come back, for `ASK_SECONDS`: it is busy, elects a leader, or can't
   be reached for a moment. Until then their batches are refused.
"""

from collections.abc import Collection, Container, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import structlog

from mesh.routing import Route, Stay
from services.gateway.requests.placement import LEADER_ERRORS, Place
from services.gateway.requests.plan import (
    Ask,
    Broker,
    Call,
    Command,
    MeshView,
    Outcome,
    RawResponse,
    Stale,
    Unreachable,
    refresh,
)
from services.gateway.requests.records import replication
from services.gateway.requests.records.producer_memory import BatchKey, Doubt, LastWrite, SeamKey, batch_key
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import MINTED, SEQUENCES, BatchHeader, visit_producer_id
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from services.gateway.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

LOOK_UP_TIMEOUT_S: Final = 3.0
ASK_SECONDS: Final = 15.0
"""Seconds that a cluster gets to answer, or to come back: leaders are elected within seconds, and producers wait for
120 s."""
NOT_NOW: Final = LEADER_ERRORS | {ErrorCode.REQUEST_TIMED_OUT}
VERSION: Final = 0
METADATA_VERSION: Final = 9
WINDOW: Final = 1 << 20
"""The greatest distance of a repeat from the last sequence: far more records than a producer has in flight."""
APART_MS: Final = 900_000
"""The greatest distance of a repeat from the last batch by their own timestamps, if the producer may have gone on.

With `WINDOW` this bound keeps sequences that have begun again at 0, after 2^31 records, from being taken for repeats.
It holds for no other producer: timestamps may be those of events, hours apart from one batch to the next.
"""
GAP_SECONDS: Final = 30.0
"""Clients send a batch again within seconds, but never a batch that they have given up."""

log = structlog.get_logger(__name__)


def seam_of(topic: str, partition: int, route: Route, before: Stay) -> SeamKey:
    return (topic, partition, route.cluster, route.upstream_topic, route.visit, before)


def is_open(topic: str, partition: int, route: Route, mesh: MeshView) -> bool:
    """Whether Produce to this partition has to check for repeats; no for topics that have never moved."""
    if route.before is None:
        return False
    memory = mesh.memory
    key = seam_of(topic, partition, route, route.before)
    return memory.doubts.any(mesh.now) or not memory.seams.is_closed(key, mesh.now)


class Verdict(Enum):
    """The verdict on a batch at the seam."""

    PASSES = "passes"
    REPEAT = "repeat"
    """The topic's last cluster has it already."""
    TOO_EARLY = "too early"
    """The batch before it has not come yet."""


def judged(topic: str, partition: int, batch: BatchHeader, mesh: MeshView) -> Verdict:
    """The verdict on a batch that the topic's last cluster may have stored, or that may be out of order."""
    route = mesh.table.route(topic)
    if route is None or route.before is None or batch.producer_id < MINTED:  # a broker gave it, for its cluster alone
        return Verdict.PASSES
    doubt = mesh.memory.doubts.get(batch_key(topic, partition, batch), mesh.now)
    if doubt is not None and doubt.stored is not None and _is_not_newer(batch, doubt.stored):
        return Verdict.REPEAT
    key = seam_of(topic, partition, route, route.before)
    producer_id = visit_producer_id(batch.producer_id, route.before.visit)
    last = mesh.memory.seams.last_write(key, producer_id)
    if last is None:
        return Verdict.PASSES
    id_here = visit_producer_id(batch.producer_id, route.visit)
    may_have_gone_on = mesh.memory.seams.may_have_gone_on(key, producer_id, id_here)
    is_near = abs(batch.max_timestamp - last.timestamp) <= APART_MS
    if _is_not_newer(batch, last) and (is_near or not may_have_gone_on):
        return Verdict.REPEAT
    skips = batch.producer_epoch == last.epoch and 0 < _ahead(batch, last) < WINDOW
    if skips and not may_have_gone_on:
        if last.gap_since is None:
            mesh.memory.seams.miss(key, producer_id, mesh.now)
            return Verdict.TOO_EARLY
        if mesh.now < last.gap_since + GAP_SECONDS:
            return Verdict.TOO_EARLY
    mesh.memory.seams.goes_on(key, producer_id)
    return Verdict.PASSES


def is_stored(topic: str, partition: int, batch: BatchHeader, mesh: MeshView) -> bool:
    """Whether the topic's last cluster has a batch that bears the id and epoch of its producer there."""
    route = mesh.table.route(topic)
    if route is None or route.before is None:
        return False
    last = mesh.memory.seams.last_write(seam_of(topic, partition, route, route.before), batch.producer_id)
    return last is not None and _is_not_newer(batch, last)


def _is_not_newer(batch: BatchHeader, last: LastWrite) -> bool:
    """Whether the batch ends at the last write or a little before, unless sequences have begun again in between."""
    behind = (last.sequence - batch.base_sequence - batch.last_offset_delta) % SEQUENCES
    return batch.producer_epoch == last.epoch and behind < WINDOW


def look_further_back(
    doubts: Mapping[BatchKey, Doubt], mesh: MeshView
) -> Generator[Command, Any, set[tuple[str, int]]]:
    """Asks for these producers' batches without an answer at the earlier stays of their topics to which they were sent.

    Returns the partitions for which a cluster has not answered yet.
    """
    untold: set[tuple[str, int]] = set()
    for key, doubt in doubts.items():
        producer_id, _, topic, partition = key
        stay, route = doubt.stay, mesh.table.route(topic)
        if route is None:
            continue
        place = (topic, partition)
        told = yield from _last_writes_on(stay.cluster, stay.upstream_topic, [place], mesh)
        if place in told.later and mesh.now < doubt.since + ASK_SECONDS:
            untold.add(place)
            continue
        told.give_up(stay.cluster)
        stored = told.writes.get(place, {}).get(visit_producer_id(producer_id, stay.visit))
        mesh.memory.doubts.replace(key, doubt._replace(looked_from=route.stay, stored=stored))
    return untold


def has_gap(topic: str, partition: int, batch: BatchHeader, mesh: MeshView) -> bool:
    """Whether an earlier batch of its producer was too early, as this one is.

    The missing batch may have gone through another gateway.
    """
    route = mesh.table.route(topic)
    if route is None or route.before is None:
        return False
    key = seam_of(topic, partition, route, route.before)
    last = mesh.memory.seams.last_write(key, visit_producer_id(batch.producer_id, route.before.visit))
    return last is not None and last.gap_since is not None and _ahead(batch, last) > 0


def _ahead(batch: BatchHeader, last: LastWrite) -> int:
    """The number of sequences in between; 0 for the next batch."""
    return (batch.base_sequence - last.sequence - 1) % SEQUENCES


def look_behind(
    mesh: MeshView,
    partitions: Iterable[tuple[str, int]],
    doubted: Container[tuple[str, int]],
    numbered: Container[tuple[str, int]],
) -> Generator[Command, Any, set[tuple[str, int]]]:
    """Learns the unknown seams of these partitions, and those of `doubted` ones again.

    Returns the partitions for which the last cluster has not answered yet; for batches that are not `numbered` it is
    not asked again so soon.
    """
    seams = mesh.memory.seams
    unknown: dict[Stay, dict[tuple[str, int], SeamKey]] = {}
    for place in partitions:
        route = mesh.table.route(place[0])
        if route is not None and route.before is not None:
            key = seam_of(*place, route, route.before)
            is_asked = place in numbered or mesh.now >= seams.untold_since(key) + ASK_SECONDS
            if place in doubted or (is_asked and not seams.is_known(key)):
                # a cluster's topics have the names of the current rules, except a topic that has got another name on
                # the same cluster
                renamed = route.before if route.before.cluster == route.cluster else Stay(route.before.cluster, 0, "")
                unknown.setdefault(renamed, {})[place] = key
    untold: set[tuple[str, int]] = set()
    for stay, keys in unknown.items():
        told = yield from _last_writes_on(stay.cluster, stay.upstream_topic, keys, mesh)
        here = yield from _known_here([place for place in keys if told.writes.get(place)], mesh)
        for place, key in keys.items():
            if place in told.later:
                if seams.is_known(key):  # the batch in doubt went elsewhere, or another request has asked meanwhile
                    continue
                if mesh.now < seams.ask(key, mesh.now) + ASK_SECONDS:
                    untold.add(place)
                    continue
            if place in doubted or not seams.is_known(key):  # another request may have asked meanwhile
                seams.learn(key, told.writes.get(place, {}), mesh.now, here.get(place))
        told.give_up(stay.cluster, untold)
    return untold


def _known_here(
    partitions: Collection[tuple[str, int]], mesh: MeshView
) -> Generator[Command, Any, dict[tuple[str, int], frozenset[int]]]:
    """Producers that the new clusters know already, by another gateway or by this one before its restart."""
    owners: dict[str, list[tuple[str, int]]] = {}
    for place in partitions:
        owner = mesh.table.cluster_of(place[0])
        if owner is not None:
            owners.setdefault(owner, []).append(place)
    found: dict[tuple[str, int], frozenset[int]] = {}
    for owner, places in owners.items():
        told = yield from _last_writes_on(owner, "", places, mesh, for_good=False)
        told.give_up(owner)
        found.update({place: frozenset(producers) for place, producers in told.writes.items()})
    return found


@dataclass(slots=True)
class _Told:
    """A cluster's answer about its producers, by topic and partition."""

    writes: dict[tuple[str, int], dict[int, LastWrite]] = field(default_factory=dict)
    """Last writes by producer, of partitions with an answer."""
    later: dict[tuple[str, int], str] = field(default_factory=dict)
    """Partitions to ask for again, with the reason why the cluster has not answered."""

    def set_apart(self, place: tuple[str, int]) -> None:
        """Takes no write of a leader for stored while the leader has more than its replicas."""
        if self.writes.get(place):
            del self.writes[place]
            self.later[place] = "not all replicas have the last records yet"

    def give_up(self, cluster: str, untold: Container[tuple[str, int]] = ()) -> None:
        """Logs the partitions that are not asked for again: all but those in `untold`."""
        for place, reason in self.later.items():
            if place not in untold:
                _tell(cluster, [place], reason)


def _last_writes_on(
    cluster: str, called: str, partitions: Collection[tuple[str, int]], mesh: MeshView, *, for_good: bool = True
) -> Generator[Command, Any, _Told]:
    """The last writes as far as the cluster reports them; `for_good`: if they are on all replicas in sync.

    `called` is the cluster's name for the one topic in question, if that is no longer the name of the current rules.
    """
    told = _Told()
    knowledge = mesh.clusters.get(cluster)
    if mesh.memory.seams.is_given_up(cluster, mesh.now):
        return told
    if knowledge is not None and knowledge.down is not None and mesh.now < knowledge.down_since + ASK_SECONDS:
        told.later.update(dict.fromkeys(partitions, knowledge.down))
        return told
    if knowledge is None or not knowledge.available or ApiKey.DESCRIBE_PRODUCERS not in knowledge.versions:
        reason = "no longer part of the mesh" if knowledge is None else knowledge.down or "older than Kafka 2.8"
        _tell(cluster, partitions, reason)
        return told
    leaders = yield from (
        _leaders_by_name(cluster, called, partitions, mesh) if called else _leaders(cluster, partitions, mesh)
    )
    places: dict[Place, dict[str, list[int]]] = {}
    for topic, partition in partitions:
        if (called or topic, partition) not in leaders:  # then there are no records either that could be repeated
            continue
        leader = leaders[called or topic, partition]
        if leader is None:
            told.later[topic, partition] = "no leader is known"
        else:
            places.setdefault(Place(cluster, leader), {}).setdefault(called or topic, []).append(partition)
    if not places:
        return told
    calls: list[Call] = []
    for place, topics in places.items():
        question = DescribeProducersRequest([TopicRequest(topic, found) for topic, found in topics.items()])
        target, own_names = Broker(place.broker_id), bool(called)
        calls.append(
            Call(cluster, question, VERSION, target, timeout_s=LOOK_UP_TIMEOUT_S, by_mesh=True, own_names=own_names)
        )
        if for_good:
            calls += replication.questions(place, topics, LOOK_UP_TIMEOUT_S, own_names=own_names, mesh=mesh)
    asked_as = {called or topic: topic for topic, _ in partitions}
    outcomes: Iterator[Outcome] = iter((yield Ask(tuple(calls), preliminary=True)))
    for topics in places.values():
        outcome = next(outcomes)
        ends = (next(outcomes), next(outcomes)) if for_good else None
        asked = [(asked_as[topic], partition) for topic, found in topics.items() for partition in found]
        if isinstance(outcome, DescribeProducersResponse):
            _take(told, cluster, asked_as, outcome)
            for topic, partition in replication.behind_leader(*ends) if ends else ():
                told.set_apart((asked_as[topic], partition))
        elif isinstance(outcome, Unreachable) and not outcome.unsupported:
            told.later.update(dict.fromkeys(asked, outcome.reason))
        else:
            _tell(cluster, asked, getattr(outcome, "reason", "an answer of another kind"))
    if told.later and not called:
        yield Stale(cluster, tuple(sorted({topic for topic, _ in told.later})))
    return told


def _take(told: _Told, cluster: str, asked_as: Mapping[str, str], answer: DescribeProducersResponse) -> None:
    for answered in answer.topics:
        for described in answered.partitions:
            place = (asked_as[answered.name], described.partition_index)
            if described.error_code in NOT_NOW:
                told.later[place] = error_name(described.error_code)
            elif described.error_code:
                _tell(cluster, [place], error_name(described.error_code))
            else:
                told.writes[place] = _last_writes(described)


def _leaders(
    cluster: str, partitions: Collection[tuple[str, int]], mesh: MeshView
) -> Generator[Command, Any, dict[tuple[str, int], int | None]]:
    """Leaders as known, or asked for.

    None: no leader is known now. Partitions that the cluster does not have are missing.
    """
    knowledge = mesh.clusters[cluster]
    without_leader = {topic for topic, partition in partitions if knowledge.leader(topic, partition) is None}
    unreachable = False
    if without_leader:
        unreachable = isinstance((yield from refresh(cluster, sorted(without_leader))), Unreachable)
    return {
        (topic, partition): knowledge.leader(topic, partition)
        for topic, partition in partitions
        if unreachable or partition < (knowledge.partition_count(topic) or 0)
    }


def _leaders_by_name(
    cluster: str, called: str, partitions: Collection[tuple[str, int]], mesh: MeshView
) -> Generator[Command, Any, dict[tuple[str, int], int | None]]:
    """The same for a topic that no client can name any more, so that the gateway keeps no knowledge of it."""
    version = highest_version(mesh, cluster, ApiKey.METADATA, METADATA_VERSION)
    question = MetadataRequest([MetadataRequestTopic(name=called)], allow_auto_topic_creation=False)
    call = Call(cluster, question, version, timeout_s=LOOK_UP_TIMEOUT_S, raw=True, by_mesh=True, own_names=True)
    (outcome,) = yield Ask((call,), preliminary=True)
    if not isinstance(outcome, RawResponse):
        return {(called, partition): None for _, partition in partitions}
    return {
        (called, partition.partition_index): partition.leader_id if partition.leader_id >= 0 else None
        for topic in outcome.decode(MetadataResponse).topics
        for partition in topic.partitions
    }


def _last_writes(described: PartitionResponse) -> dict[int, LastWrite]:
    return {
        state.producer_id: LastWrite(state.producer_epoch, state.last_sequence, state.last_timestamp)
        for state in described.active_producers
        if state.last_sequence >= 0
    }


def _tell(cluster: str, partitions: Iterable[tuple[str, int]], reason: str) -> None:
    log.warning(
        "the last batches of these producers are unknown: a cluster can't be asked",
        cluster=cluster,
        topics=sorted({topic for topic, _ in partitions}),
        reason=reason,
    )
