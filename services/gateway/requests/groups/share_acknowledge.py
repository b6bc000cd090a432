"""ShareAcknowledge: to the leaders that gave the records, in the sessions in which they did."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from services.gateway.requests.groups import share_parts
from services.gateway.requests.groups.share_opening import (
    GONE,
    GONE_TEXT,
    Refused,
    Results,
    by_topic,
    opened,
    shorter,
    slots_of,
)
from services.gateway.requests.groups.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    BrokerSession,
    Leader,
    ShareSession,
    Slot,
)
from services.gateway.requests.plan import Broker, Call, Command, Lane, MeshView, Plan, Request, Unreachable
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

NO_LEADER = LeaderIdAndEpoch(-1, -1)

Given = dict[Slot, AcknowledgePartition]


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ShareAcknowledgeRequest)
    if message.share_session_epoch == INITIAL_EPOCH:
        code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
        text = worded(code, f"an acknowledgement goes on with a share session: epoch {INITIAL_EPOCH} begins one")
        return ShareAcknowledgeResponse(error_code=code, error_message=text)
    member = (message.group_id or "", message.member_id or "")
    session = yield from opened(member, message.share_session_epoch, message.topics, mesh)
    if isinstance(session, Refused):
        return ShareAcknowledgeResponse(error_code=session.code, error_message=session.text)
    results: Results[PartitionData] = Results(lambda earlier, later: earlier if earlier.error_code else later)
    with session.under_way():
        lock_timeout_ms = yield from _settled(message, request.version, session, results, mesh)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_timeout_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in results.by_topic(mesh).items()
        ],
    )


def _settled(
    message: ShareAcknowledgeRequest,
    version: int,
    session: ShareSession,
    results: Results[PartitionData],
    mesh: MeshView,
) -> Generator[Command, Any, int]:
    """Pass each acknowledgement on to the broker that gave the records; returns the locks' time-out in ms."""
    given, strange = yield from slots_of(message.topics, mesh)
    for topic in strange:
        failed = [_failed(p.partition_index, ErrorCode.UNKNOWN_TOPIC_ID) for p in topic.partitions]
        results.put_strange(topic.topic_id, failed)
    final = message.share_session_epoch == FINAL_EPOCH
    parts = _by_giver(session, given, results, mesh, everyone=final)
    calls = [_call(session, there, part, message, version) for there, part in parts]
    outcomes = yield from ask_fitting(mesh, calls, ShareAcknowledgeResponse)
    lock_timeout_ms = 0
    for (there, part), outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, Unreachable) or outcome.error_code:
            session.lost(there.leader)
            for slot in part:
                results.put(slot, _failed(slot.partition, GONE, GONE_TEXT))
            continue
        there.goes_on(there.slots)
        lock_timeout_ms = shorter(lock_timeout_ms, outcome.acquisition_lock_timeout_ms)
        _take(session, there, outcome, results)
    return lock_timeout_ms


def _by_giver(
    session: ShareSession, given: Given, results: Results[PartitionData], mesh: MeshView, *, everyone: bool
) -> list[tuple[BrokerSession, Given]]:
    """The acknowledgements for each broker; the end of the session goes to all brokers."""
    parts: dict[Leader, Given] = {leader: {} for leader in session.brokers} if everyone else {}
    named = {slot: partition.acknowledgement_batches for slot, partition in given.items()}
    for (slot, cluster), batches in share_parts.acknowledged(named, mesh).items():
        giver = session.giver(slot, cluster)
        if giver is None:
            results.put(slot, _failed(slot.partition, GONE, GONE_TEXT))
        else:
            parts.setdefault(giver.leader, {})[slot] = replace(given[slot], acknowledgement_batches=list(batches))
    return [(session.brokers[leader], part) for leader, part in parts.items()]


def _call(
    session: ShareSession,
    there: BrokerSession,
    part: Given,
    message: ShareAcknowledgeRequest,
    version: int,
) -> Call:
    cluster, broker_id = there.leader
    final = message.share_session_epoch == FINAL_EPOCH
    question = replace(
        message,
        member_id=there.member_id,
        share_session_epoch=FINAL_EPOCH if final else there.epoch,
        topics=[
            AcknowledgeTopic(
                topic_id=session.ids[cluster, topic], partitions=[part[Slot(topic, index)] for index in partitions]
            )
            for topic, partitions in by_topic(part).items()
        ],
    )
    return Call(cluster, question, version, Broker(broker_id), Lane.FETCH)


def _take(
    session: ShareSession,
    there: BrokerSession,
    outcome: ShareAcknowledgeResponse,
    results: Results[PartitionData],
) -> None:
    names = session.topics_by_id(there.leader[0])
    for topic in outcome.responses:
        name = names.get(topic.topic_id)
        if name is None:
            continue
        for partition in topic.partitions:
            partition.current_leader = NO_LEADER
            results.put(Slot(name, partition.partition_index), partition)


def _failed(partition: int, code: ErrorCode, text: str | None = None) -> PartitionData:
    return PartitionData(partition, code, text, current_leader=NO_LEADER)
