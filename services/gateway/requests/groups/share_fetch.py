"""ShareFetch: to the real leaders of the partitions, on any clusters, each with a session of its own.

Theory of operation
1. The sessions decide which partitions go to which leader (`share_sessions`). The first round carries the
   acknowledgements.
2. One leader: the leader waits for records for the client's wait. Several leaders: they are asked in short rounds until
   one has records or the time is over. So an idle leader does not hold back the records of a busy one.
3. The most records that the client wants are divided among the leaders: no leader gives out records that the client
   would not take.
4. Records of topics with a rule of protection are revealed, or released again (`share_revealing`).
5. The old parts of a stitched log are asked in short rounds, and rarely while they have nothing (`share_parts`).
6. A node of the client's stands for some clusters. A partition of another cluster has moved there: its error makes the
   client look for the leader, and find the right node.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from services.gateway.requests.groups import share_parts
from services.gateway.requests.groups.share_opening import (
    ELSEWHERE,
    GONE,
    GONE_TEXT,
    Refused,
    Results,
    by_topic,
    opened,
    settle_node,
    shorter,
    slots_of,
)
from services.gateway.requests.groups.share_revealing import MOST_BYTES, Closed, Given, closed, refuse
from services.gateway.requests.groups.share_sessions import (
    FINAL_EPOCH,
    Errand,
    Giver,
    Leader,
    Member,
    ShareSession,
    Slot,
    errands,
)
from services.gateway.requests.placement import LEADER_ERRORS, Wanted, locate
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Broker,
    Call,
    Command,
    Gather,
    Lane,
    MeshView,
    Plan,
    Request,
    Stale,
    Unreachable,
)
from services.gateway.requests.records.stitched import Stretches
from services.gateway.requests.traffic.calls import begun
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

ROUND_MS = 100
"""How long, in milliseconds, each of several leaders waits for records in one round."""
NO_LEADER = LeaderIdAndEpoch(-1, -1)
SESSION_ERRORS = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
"""Errors of a broker that has forgotten the session: the gateway begins a new session, which the client need not know.
"""


def handle(request: Request, mesh: MeshView) -> Plan:
    counted = begun(request, mesh)
    message = request.decode(ShareFetchRequest)
    member = (message.group_id or "", message.member_id or "")
    session = yield from opened(member, message.share_session_epoch, message.topics, mesh)
    if isinstance(session, Refused):
        return ShareFetchResponse(error_code=session.code, error_message=session.text)
    fetch = _Fetch(member, message, request.version, session, Given(member, request.version, session))
    with session.under_way():
        yield from fetch.read(mesh)
        while (yield from fetch.round(mesh)):
            pass
        yield from fetch.reveal(mesh)
    if counted is not None:
        counted.shared(fetch.results.by_slot)
    if fetch.refused is not None:
        mesh.memory.share_sessions.end(member, session)
        return ShareFetchResponse(error_code=fetch.refused.code, error_message=fetch.refused.text)
    if counted is not None:
        counted.acquired(fetch.results.by_slot, member[0])
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=fetch.lock_timeout_ms,
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in fetch.results.by_topic(mesh).items()
        ],
    )


@dataclass(slots=True)
class _Fetch:
    """One request of a client, through all its rounds."""

    member: Member
    message: ShareFetchRequest
    version: int
    session: ShareSession
    given: Given
    acknowledged: Mapping[Giver, Sequence[AcknowledgementBatch]] = field(default_factory=dict)
    """Acknowledgements that the gateway has not passed on yet."""
    parts: dict[Slot, Stretches] = field(default_factory=dict)
    """The parts of the partitions whose logs are stitched."""
    results: Results[PartitionData] = field(default_factory=lambda: Results(_joined))
    waited_ms: int = 0
    lock_timeout_ms: int = 0
    refused: Refused | None = None
    most_bytes: int = 0

    @property
    def final(self) -> bool:
        return self.message.share_session_epoch == FINAL_EPOCH

    def read(self, mesh: MeshView) -> Generator[Command, Any, None]:
        """Takes over the partitions and acknowledgements of the request."""
        slots, strange = yield from slots_of(self.message.topics, mesh)
        forgotten, _ = yield from slots_of(self.message.forgotten_topics_data, mesh)
        self.session.want(slots)
        self.session.forget(forgotten)
        settle_node(self.member, self.session, mesh)
        named = {slot: p.acknowledgement_batches for slot, p in slots.items() if p.acknowledgement_batches}
        self.acknowledged = share_parts.acknowledged(named, mesh)
        found = {slot: share_parts.parts_of(slot, mesh) for slot in (*self.session.wanted, *slots)}
        self.parts = {slot: parts for slot, parts in found.items() if parts}
        for topic in strange:
            failed = [_failed(p.partition_index, ErrorCode.UNKNOWN_TOPIC_ID) for p in topic.partitions]
            self.results.put_strange(topic.topic_id, failed)

    def round(self, mesh: MeshView) -> Generator[Command, Any, bool]:
        """Asks each leader once; returns whether to ask again."""
        leaders = yield from self._leaders(mesh)
        self.session.meets(
            {
                (cluster, slot.topic): mesh.clusters[cluster].topics[slot.topic].topic_id
                for slot, places in leaders.items()
                for cluster, _ in places
            }
        )
        todo, stranded = errands(
            self.session,
            leaders,
            self.acknowledged,
            lambda leader: share_parts.member_at(leader, self.member, self.session, mesh),
        )
        for slot in stranded:
            self.results.put(slot, _unacknowledged(slot))
        self.acknowledged = {}
        if self.final:
            todo = [replace(errand, told={}, forgotten=()) for errand in todo if not errand.session.is_new]
        else:
            todo = [errand for errand in todo if not self._rests(errand, mesh.clock())]
        left_ms = max(0, self.message.max_wait_ms - self.waited_ms)
        round_ms = share_parts.OLD_ROUND_MS if any(map(self._is_old, todo)) else ROUND_MS
        wait_ms = min(round_ms, left_ms) if len(todo) > 1 else left_ms
        if not todo and not self.final:
            yield Gather((), lambda _: False, wait_ms / 1000)
        self.waited_ms += wait_ms
        calls = [self._call(errand, wait_ms, share) for errand, share in zip(todo, self._shares(todo), strict=True)]
        outcomes = yield from ask_fitting(mesh, calls, ShareFetchResponse)
        answered = 0
        for errand, outcome in zip(todo, outcomes, strict=True):
            answered += yield from self._take(errand, outcome, mesh)
        if todo and not answered:
            if self.refused is None and not self.final:
                yield Gather((), lambda _: False, ROUND_MS / 1000)  # the client asks again at once
            return False
        self.refused = None
        has_records = any(result.acquired_records for result in self.results)
        done = self.final or has_records or self.message.is_renew_ack
        return not done and self.waited_ms < self.message.max_wait_ms

    def _leaders(self, mesh: MeshView) -> Generator[Command, Any, dict[Slot, list[Leader]]]:
        """Leaders of the wanted partitions, as far as this session may read them there now."""
        located = yield from locate(mesh, [Wanted(*slot, slot) for slot in self.session.wanted])
        for wanted, error in located.homeless:
            self.results.put(wanted.item, _failed(wanted.partition, error))
        leaders: dict[Slot, list[Leader]] = {}
        now = mesh.clock()
        protected = yield from self._protected(mesh)
        for place, found in located.places.items():
            bar = self._bar(place.cluster, mesh)
            for wanted in found:
                why = protected.get(wanted.topic)
                if why is not None:
                    text = refuse(wanted.item, why, mesh)
                    self.results.put(wanted.item, _failed(wanted.partition, why.code, text))
                elif bar is not None:
                    text = f"topic {wanted.topic} lives on cluster {place.cluster}, {bar.text}"
                    self.results.put(wanted.item, _failed(wanted.partition, bar.code, worded(bar.code, text)))
                elif wanted.item in self.parts or not self.session.waits_for_locks(wanted.item, place.cluster, now):
                    leaders[wanted.item] = [place]
        yield from self._add_old(leaders, mesh)
        return leaders

    def _add_old(self, leaders: dict[Slot, list[Leader]], mesh: MeshView) -> Generator[Command, Any, None]:
        """Adds the leaders of old parts. A cluster that is away is asked again later, and nobody waits for it."""
        rule = mesh.table.group_rule(self.member[0])
        by_cluster: dict[str, list[Slot]] = {}
        for slot, parts in self.parts.items():
            for cluster in share_parts.old_clusters(parts, mesh) if slot in leaders else ():
                if rule is None or rule.shadow_topics or cluster == rule.target_cluster:
                    by_cluster.setdefault(cluster, []).append(slot)
        for cluster, slots in by_cluster.items():
            located = yield from locate(mesh, [Wanted(*slot, slot, cluster) for slot in slots])
            for place, found in located.places.items():
                for wanted in found:
                    leaders[wanted.item].append(place)

    def _is_old(self, errand: Errand) -> bool:
        """Whether the broker is asked for old parts alone."""
        cluster = errand.session.leader[0]
        slots = errand.told or errand.session.slots
        return bool(slots) and all(slot in self.parts and self.parts[slot][-1].cluster != cluster for slot in slots)

    def _rests(self, errand: Errand, now: float) -> bool:
        """Whether the broker had nothing of its old parts just now."""
        is_quiet = now < self.session.quiet.get(errand.session.leader, now)
        return is_quiet and self._is_old(errand) and not any(errand.named.values())

    def _protected(self, mesh: MeshView) -> Generator[Command, Any, dict[str, Closed | None]]:
        """The protected topics of the session; with the reason, if nothing is read of them now."""
        topics = {slot.topic for slot in self.session.wanted if mesh.memory.protection.rules_for(slot.topic)}
        self.most_bytes = min(self.message.max_bytes, MOST_BYTES) if topics else self.message.max_bytes
        found: dict[str, Closed | None] = {}
        for topic in sorted(topics):
            found[topic] = yield from closed(topic, mesh)
        return found

    def reveal(self, mesh: MeshView) -> Generator[Command, Any, None]:
        """Puts the records that the member may see into the results."""
        kept_back = yield from self.given.reveal(self.results.by_slot, mesh)
        if kept_back and not any(result.acquired_records for result in self.results):
            yield Gather((), lambda _: False, self.message.max_wait_ms / 1000, since=mesh.now)  # it asks again at once

    def _bar(self, cluster: str, mesh: MeshView) -> "_Bar | None":
        """Why this session does not read topics of a cluster."""
        rule = mesh.table.group_rule(self.member[0])
        if rule is not None and not rule.shadow_topics and cluster != rule.target_cluster:
            return _Bar(ELSEWHERE, f"the share group on {rule.target_cluster}")
        versions = mesh.clusters[cluster].versions
        if versions and ApiKey.SHARE_FETCH not in versions:
            return _Bar(ELSEWHERE, "which has no share groups")
        if cluster not in mesh.nodes.clusters_of(self.session.node):
            return _Bar(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"which is not that of node {self.session.node}")
        return None

    def _shares(self, todo: Sequence[Errand]) -> list[int]:
        """The most records that each leader may give out."""
        each, rest = divmod(self.message.max_records, max(1, len(todo)))
        return [each + (index < rest) for index in range(len(todo))]

    def _call(self, errand: Errand, wait_ms: int, max_records: int) -> Call:
        cluster, broker_id = errand.session.leader
        ids = self.session.ids
        message = replace(
            self.message,
            member_id=errand.session.member_id,
            share_session_epoch=FINAL_EPOCH if self.final else errand.session.epoch,
            max_wait_ms=wait_ms,
            max_bytes=self.most_bytes,
            max_records=max_records,
            topics=[
                FetchTopic(
                    topic_id=ids[cluster, topic],
                    partitions=[FetchPartition(index, list(errand.named[Slot(topic, index)])) for index in partitions],
                )
                for topic, partitions in by_topic(errand.named).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(ids[cluster, topic], partitions)
                for topic, partitions in by_topic(errand.forgotten).items()
            ],
        )
        patience_s = share_parts.OLD_TIMEOUT_S if self._is_old(errand) else CALL_TIMEOUT_S
        return Call(cluster, message, self.version, Broker(broker_id), Lane.FETCH, wait_ms / 1000 + patience_s)

    def _take(
        self, errand: Errand, outcome: ShareFetchResponse | Unreachable, mesh: MeshView
    ) -> Generator[Command, Any, bool]:
        """Takes over one leader's answer; returns whether there was an answer without an error."""
        cluster, _ = errand.session.leader
        is_old = self._is_old(errand)
        if is_old:
            rest_s = share_parts.AWAY_S if isinstance(outcome, Unreachable) else share_parts.QUIET_S
            self.session.quiet[errand.session.leader] = mesh.clock() + rest_s
        if isinstance(outcome, Unreachable) or outcome.error_code:
            self.session.lost(errand.session.leader)
            for slot, batches in errand.named.items():
                if batches:
                    self.results.put(slot, _unacknowledged(slot))
            if isinstance(outcome, Unreachable):
                yield Stale(cluster, tuple({slot.topic for slot in errand.told}))
            elif outcome.error_code not in SESSION_ERRORS and not is_old:
                self.refused = Refused(outcome.error_code, outcome.error_message or "")
            return False
        errand.session.goes_on(errand.told)
        self.lock_timeout_ms = shorter(self.lock_timeout_ms, outcome.acquisition_lock_timeout_ms)
        locked_until = mesh.clock() + outcome.acquisition_lock_timeout_ms / 1000
        names = self.session.topics_by_id(cluster)
        stale: set[str] = set()
        for topic in outcome.responses:
            name = names.get(topic.topic_id)
            if name is None:
                continue
            for partition in topic.partitions:
                partition.current_leader = NO_LEADER
                slot = Slot(name, partition.partition_index)
                if partition.error_code in LEADER_ERRORS:
                    stale.add(name)
                if partition.acquired_records:
                    self.session.quiet.pop(errand.session.leader, None)
                if slot in self.parts:
                    share_parts.show(partition, cluster, self.parts[slot])
                self.results.put(slot, partition)
                if partition.acquired_records:
                    self.given.givers.setdefault(slot, {})[cluster] = errand.session
                    self.session.gave(slot, cluster, locked_until)
        if stale:
            yield Stale(cluster, tuple(sorted(stale)))
        return True


class _Bar(NamedTuple):
    code: ErrorCode
    text: str
    """Goes on after the name of the topic's cluster."""


def _joined(earlier: PartitionData, later: PartitionData) -> PartitionData:
    """Joins two answers about a partition: the records of one, and the acknowledgement error of either.

    They come from two rounds, or from two brokers after the leader has changed: the broker that gave the records, and
    the leader of now. Parts of a stitched log may both have given records.
    """
    if earlier.acquired_records and later.acquired_records:
        share_parts.joined(earlier, later)
    kept, other = (earlier, later) if earlier.acquired_records else (later, earlier)
    if not kept.acknowledge_error_code:
        kept.acknowledge_error_code = other.acknowledge_error_code
        kept.acknowledge_error_message = other.acknowledge_error_message
    return kept


def _failed(partition: int, code: ErrorCode, text: str | None = None) -> PartitionData:
    return PartitionData(partition, code, text, current_leader=NO_LEADER)


def _unacknowledged(slot: Slot) -> PartitionData:
    return PartitionData(
        slot.partition, acknowledge_error_code=GONE, acknowledge_error_message=GONE_TEXT, current_leader=NO_LEADER
    )
