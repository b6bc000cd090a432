"""The answer to a client's Produce, made from the leaders' answers."""

from typing import TypeGuard

from services.gateway.requests.plan import Answer, Body, Close, NoAnswer, Outcome, RawResponse
from services.gateway.requests.records.produce_order import Producing
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from services.gateway.wire.primitives import WireError
from services.gateway.wire.scanner import ProduceTopic
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.produce_response import (
    Awaited,
    join_clean,
    produce_response_is_clean,
    with_topic_ids,
)

FLEXIBLE = flexible_since(ApiKey.PRODUCE) or 0


def passing(produce: Producing, outcome: Outcome) -> Answer | None:
    """An answer that may go to the client without being opened; the decoder refuses unreadable bytes."""
    if not isinstance(outcome, RawResponse) or produce.is_stitched:
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


def joined(produce: Producing, outcomes: list[Outcome]) -> Body | None:
    """One answer, joined from several that may pass unopened; None if one of them must be opened."""
    if len(outcomes) < 2 or produce.results or produce.strange or produce.scan.transactional_id is not None:
        return None
    if produce.request.version < FLEXIBLE or produce.is_stitched:
        return None
    by_id = produce.request.version >= IDS_SINCE
    responses = [
        (outcome.frame, outcome.version, outcome.body_offset, len(outcome.frame))
        for outcome in outcomes
        if isinstance(outcome, RawResponse)
    ]
    if len(responses) < len(outcomes):
        return None
    topics = [
        Awaited(topic.name.encode(), topic.topic_id if by_id else None, len(topic.partitions))
        for topic in produce.scan.topics
    ]
    try:
        pieces = join_clean(responses, topics)
    except WireError:  # the decoder refuses it
        return None
    return None if pieces is None else Body(tuple(pieces))


def is_of_version(outcome: Outcome, version: int) -> TypeGuard[RawResponse]:
    return isinstance(outcome, RawResponse) and outcome.version == version


def is_clean(response: ProduceResponse) -> bool:
    """Whether the answer says nothing about the cluster behind the gateway."""
    return not response.node_endpoints and not any(
        partition.error_code for topic in response.responses for partition in topic.partition_responses
    )


def answer_of(produce: Producing) -> Answer:
    if produce.scan.acks == 0:
        failed = sorted({slot[0] for slot, result in produce.results.items() if result.error_code})
        failed += [f"with id {topic.topic_id.hex()}" for topic in produce.strange]
        return Close(f"Produce with acks 0 could not be sent, topics {', '.join(failed)}") if failed else NoAnswer()
    return ProduceResponse(
        throttle_time_ms=produce.throttle_ms,
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
        ],
    )


def _unknown(topic: ProduceTopic) -> list[PartitionProduceResponse]:
    return [PartitionProduceResponse(each.partition, ErrorCode.UNKNOWN_TOPIC_ID, -1) for each in topic.partitions]
