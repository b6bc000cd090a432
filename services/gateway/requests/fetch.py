"""Fetch: a long poll over every leader that the client's partitions live on, answered as soon as one has enough.

Theory of operation
1. The client's wait, minimum and maximum are passed to each leader. The answer leaves when the bytes that have come in
   reach the minimum, a broker reports an error, all have answered, or the wait is over. An idle cluster never delays
   a busy one: what it has not said by then is shown as "nothing new", and its answer is kept for the client's next
   Fetch from the same positions (`Call.resume_key`).
2. There are no sessions: the client is answered with session 0 and sends full requests; brokers are asked as the last
   request of no session.
3. Leader epochs, racks and preferred replicas stay on their own side: none goes up, none comes back.
4. With one leader and nothing to hide, the answer passes as it came. Records are never copied or opened.
5. What we refuse ourselves (no rule, no leader, nobody reached) is told when the rest is, or after the client's wait:
   a client that is answered at once asks again at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.gateway.requests.placement import LEADER_ERRORS, Located, Place, Wanted, locate
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    Body,
    Broker,
    Call,
    Gather,
    Lane,
    MeshView,
    Outcome,
    Plan,
    RawResponse,
    Request,
    Stale,
    Unreachable,
)
from services.gateway.wire.codec import encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from services.gateway.wire.primitives import Buffer, WireError
from services.gateway.wire.scanner import (
    Entries,
    FetchedPartition,
    FetchResponseScan,
    cut_entry,
    join_fetch_response,
    scan_fetch_response,
)
from services.gateway.wire.schema import NO_UUID

NO_SESSION = -1
NO_EPOCH = -1
MAX_WAIT_MS = 300_000
"""Longest poll that we carry out; clients wait 500 ms by default."""

Slot = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class _Parts:
    """What has come in, partition by partition, with the buffer that it lies in."""

    found: dict[Slot, tuple[Buffer, FetchedPartition]] = field(default_factory=dict)
    throttle_ms: int = 0


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(FetchRequest)
    if message.session_id:
        # We gave none away: the client's is from somewhere else. It starts afresh with a full request.
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    wanted = [Wanted(topic.topic, p.partition, p) for topic in message.topics for p in topic.partitions]
    located = yield from locate(mesh, wanted)
    wait_ms = min(max(0, message.max_wait_ms), MAX_WAIT_MS)
    calls = tuple(
        _call(message, request.version, place, parts, wait_ms, len(located.places))
        for place, parts in located.places.items()
    )
    # One broker keeps the time by itself; with several, or none, it is kept here.
    wait_s = calls[0].timeout_s if len(calls) == 1 else wait_ms / 1000
    outcomes: tuple[Outcome | None, ...] = yield Gather(calls, _Enough(message.min_bytes, request.version), wait_s)
    if outcomes and all(isinstance(outcome, Unreachable) for outcome in outcomes):
        yield Gather((), lambda _: False, wait_ms / 1000)
    scans = [_scan(outcome, request.version) for outcome in outcomes]
    for place, parts, scan in zip(located.places, located.places.values(), scans, strict=True):
        stale = _stale_topics(parts, scan)
        if stale:
            yield Stale(place.cluster, stale)
    if len(outcomes) == 1 and not located.homeless:
        (outcome,), (only,) = outcomes, scans
        if only is not None and only.untouched and isinstance(outcome, RawResponse):
            return outcome
    return _joined(message, request.version, located, outcomes, scans)


def _call(
    message: FetchRequest, version: int, place: Place, parts: list[Wanted[FetchPartition]], wait_ms: int, places: int
) -> Call:
    """The part of the request that goes to one leader; `max_bytes` is shared out evenly."""
    topics: dict[str, FetchTopic] = {}
    positions: list[tuple[str, int, int, int]] = []
    for w in parts:
        w.item.current_leader_epoch = w.item.last_fetched_epoch = NO_EPOCH
        topics.setdefault(w.topic, FetchTopic(w.topic)).partitions.append(w.item)
        positions.append((w.topic, w.partition, w.item.fetch_offset, w.item.partition_max_bytes))
    part = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=message.min_bytes,
        max_bytes=max(1, message.max_bytes // places),
        isolation_level=message.isolation_level,
        session_epoch=NO_SESSION,
        topics=list(topics.values()),
    )
    return Call(
        place.cluster,
        part,
        version,
        Broker(place.broker_id),
        Lane.FETCH,
        timeout_s=wait_ms / 1000 + CALL_TIMEOUT_S,
        raw=True,
        resume_key=(version, message.isolation_level, frozenset(positions)),  # some clients change the order each time
    )


@dataclass(frozen=True, slots=True)
class _Enough:
    """Whether what has come in is worth an answer."""

    min_bytes: int
    version: int

    def __call__(self, outcomes: Sequence[Outcome | None]) -> bool:
        if None not in outcomes:
            return True
        gathered = 0
        for outcome in outcomes:
            scan = _scan(outcome, self.version)
            if scan is not None:
                if _has_errors(scan):
                    return True
                gathered += scan.record_bytes
        return gathered >= max(1, self.min_bytes)


def _scan(outcome: Outcome | None, version: int) -> FetchResponseScan | None:
    if not isinstance(outcome, RawResponse):
        return None
    try:
        return scan_fetch_response(outcome.frame, version, outcome.body_offset, len(outcome.frame))
    except WireError:
        return None


def _has_errors(scan: FetchResponseScan) -> bool:
    return bool(scan.error_code) or any(p.error_code for topic in scan.topics for p in topic.partitions)


def _stale_topics(parts: list[Wanted[FetchPartition]], scan: FetchResponseScan | None) -> tuple[str, ...]:
    """Topics about which the leader knows better than we do."""
    if scan is None:
        return ()
    if scan.error_code:
        return tuple({w.topic for w in parts})
    return tuple(t.name for t in scan.topics if any(p.error_code in LEADER_ERRORS for p in t.partitions))


def _joined(
    message: FetchRequest,
    version: int,
    located: Located[FetchPartition],
    outcomes: Sequence[Outcome | None],
    scans: Sequence[FetchResponseScan | None],
) -> Answer:
    """One answer in the client's order, which must name every partition of the request."""
    parts = _Parts()
    own: dict[Slot, PartitionData] = {(w.topic, w.partition): _failed(w.partition, e) for w, e in located.homeless}
    for wanted, outcome, scan in zip(located.places.values(), outcomes, scans, strict=True):
        if isinstance(outcome, RawResponse) and scan is not None and not scan.error_code:
            for topic in scan.topics:
                for partition in topic.partitions:
                    parts.found[topic.name, partition.partition] = (outcome.frame, partition)
            if len(outcomes) == 1:
                parts.throttle_ms = scan.throttle_time_ms
        error = ErrorCode.NONE if outcome is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        for w in wanted:
            if (w.topic, w.partition) not in parts.found:
                own[w.topic, w.partition] = _failed(w.partition, error)
    _add_own(parts, own, version)
    topics = [
        Entries(
            topic.topic,
            NO_UUID,
            [cut_entry(*parts.found[topic.topic, p.partition], version, version) for p in topic.partitions],
        )
        for topic in message.topics
    ]
    return Body(tuple(join_fetch_response(version, topics, throttle_time_ms=parts.throttle_ms)))


def _failed(partition: int, error: ErrorCode) -> PartitionData:
    """A partition with an error, or with nothing new (NONE); its marks are "unknown", which clients leave alone."""
    return PartitionData(partition_index=partition, error_code=error, high_watermark=-1)


def _add_own(parts: _Parts, own: dict[Slot, PartitionData], version: int) -> None:
    """Partitions that we answer ourselves, in the same form as the others."""
    if not own:
        return
    by_topic: dict[str, FetchableTopicResponse] = {}
    for (topic, _), data in own.items():
        by_topic.setdefault(topic, FetchableTopicResponse(topic)).partitions.append(data)
    body = encode(FetchResponse(responses=list(by_topic.values())), version)
    for topic_scan in scan_fetch_response(body, version, 0, len(body)).topics:
        for partition in topic_scan.partitions:
            parts.found[topic_scan.name, partition.partition] = (body, partition)
