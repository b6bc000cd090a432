"""Guards of requests about groups and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mesh.acls import Operation, ResourceType
from services.gateway.authorization.asking import Asking, Guard
from services.gateway.authorization.shapes import cluster, divided, fitted, is_by_id, needs
from services.gateway.authorization.topics import authorized, may_create
from services.gateway.requests.plan import Plan
from services.gateway.wire.error_words import words_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    add_partitions_to_txn,
    describe_share_group_offsets,
    describe_transactions,
    find_coordinator,
    list_groups,
    list_transactions,
    offset_fetch,
    streams_group_heartbeat,
)
from services.gateway.wire.schema import Struct

TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
DESCRIBE = Operation.DESCRIBE
NO_OFFSET = -1
_DESCRIBE_GROUP = needs(DESCRIBE, GROUP, "group_id")
_DESCRIBE_TOPIC = needs(DESCRIBE, TOPIC, "name")
_COORDINATORS = {0: needs(DESCRIBE, GROUP, "key"), 1: needs(DESCRIBE, TRANSACTION, "key")}
"""By the type of the key. Brokers alone may look for other coordinators."""
_OTHER_COORDINATORS = cluster(Operation.CLUSTER_ACTION)


def guard_find_coordinator(asking: Asking) -> Plan:
    message = asking.request.decode(find_coordinator.FindCoordinatorRequest)
    need = _COORDINATORS.get(message.key_type, _OTHER_COORDINATORS)
    batched = asking.request.version >= 4
    kept, left_out = divided(asking, message.coordinator_keys if batched else [message.key], need, {})
    if not left_out:
        return (yield from asking.pass_on())
    if not batched:
        code = left_out[0][1]
        return find_coordinator.FindCoordinatorResponse(
            error_code=code, error_message=words_of(code), node_id=-1, host="", port=-1
        )
    answer = find_coordinator.FindCoordinatorResponse()
    if kept:
        message.coordinator_keys = kept
        given = yield from asking.go_on(message, find_coordinator.FindCoordinatorResponse)
        if not isinstance(given, find_coordinator.FindCoordinatorResponse):
            return given
        answer = given
    answer.coordinators += [
        find_coordinator.Coordinator(key, -1, "", -1, code, words_of(code)) for key, code in left_out
    ]
    return answer


def guard_list_groups(asking: Asking) -> Plan:
    """A client that may describe the cluster sees all groups."""
    answer = yield from asking.answer(list_groups.ListGroupsResponse)
    if isinstance(answer, list_groups.ListGroupsResponse) and not asking.access.allows(DESCRIBE, ResourceType.CLUSTER):
        answer.groups = [each for each in answer.groups if asking.shows(DESCRIBE, GROUP, each.group_id)]
    return answer


def describing(
    request: type[Struct],
    response: type[Struct],
    field: str,
    group: Callable[..., Any],
    topics: Callable[[Any], Iterable[str]] = lambda _: (),
) -> Guard:
    """`topics`: those that a description names; a client that may not describe one of them gets no description."""

    def guard(asking: Asking) -> Plan:
        message: Any = asking.request.decode(request)
        kept, left_out = divided(asking, getattr(message, field), needs(DESCRIBE, GROUP, field), {})
        answer: Any = response()
        if kept or not left_out:
            setattr(message, field, kept)
            answer = yield from asking.go_on(message, response)
            if not isinstance(answer, response):
                return answer  # type: ignore[no-any-return]
        for each in answer.groups if asking.enforces else ():
            hidden = next((topic for topic in topics(each) if not asking.may(DESCRIBE, TOPIC, topic)), None)
            if hidden is not None:
                each.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                each.error_message = "The group has described topic(s) that the client is not authorized to describe."
                each.members = []
            elif message.include_authorized_operations and each.error_code == 0:
                each.authorized_operations = authorized(asking, GROUP, each.group_id, each.authorized_operations)
        for name, code in left_out:
            refused = group(error_code=code, error_message=words_of(code), group_id=name)
            answer.groups.append(fitted(refused, asking.request.version))
        return answer  # type: ignore[no-any-return]

    return guard


def topics_of_members(group: Any) -> Iterable[str]:
    """The topics that the members of a described group read, or will read."""
    for member in group.members:
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            if assignment is not None:
                yield from (each.topic_name for each in assignment.topic_partitions)


def topics_of_streams(group: Any) -> Iterable[str]:
    """The topics of a described topology."""
    if group.topology is not None:
        for part in group.topology.subtopologies or ():
            yield from part.source_topics
            yield from part.repartition_sink_topics
            yield from (each.name for each in (*part.state_changelog_topics, *part.repartition_source_topics))


def may_have_topology(asking: Asking, message: streams_group_heartbeat.StreamsGroupHeartbeatRequest) -> int:
    """A need: topics of the topology are described, and its internal topics are created if they are missing."""
    if message.topology is None:
        return 0
    code = 0
    clusters = asking.mesh.clusters.values()
    for part in message.topology.subtopologies:
        internal = [each.name for each in (*part.state_changelog_topics, *part.repartition_source_topics)]
        for name in (*part.source_topics, *part.repartition_sink_topics, *internal):
            if not asking.may(DESCRIBE, TOPIC, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for name in internal:
            if any(name in each.topics for each in clusters) or may_create(asking, name):
                continue
            if not asking.refused(Operation.CREATE, TOPIC, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return code


# --- offsets ---------------------------------------------------------------------------------------------------------


def guard_offset_fetch(asking: Asking) -> Plan:
    message = asking.request.decode(offset_fetch.OffsetFetchRequest)
    if asking.request.version >= 8:
        return (yield from _offsets_of_groups(asking, message))
    code = _DESCRIBE_GROUP(asking, message)
    if code:
        topics = message.topics or []
        return offset_fetch.OffsetFetchResponse(topics=[_no_offsets(each, code) for each in topics], error_code=code)
    if message.topics is None:
        answer = yield from asking.answer(offset_fetch.OffsetFetchResponse)
        if isinstance(answer, offset_fetch.OffsetFetchResponse):
            answer.topics = [each for each in answer.topics if asking.shows(DESCRIBE, TOPIC, each.name)]
        return answer
    kept, left_out = divided(asking, message.topics, _DESCRIBE_TOPIC, {})
    if not left_out:
        return (yield from asking.pass_on())
    message.topics = kept
    answer = yield from asking.go_on(message, offset_fetch.OffsetFetchResponse)
    if isinstance(answer, offset_fetch.OffsetFetchResponse):
        answer.topics += [_no_offsets(each, code) for each, code in left_out]
    return answer


def _no_offsets(topic: offset_fetch.OffsetFetchRequestTopic, code: int) -> offset_fetch.OffsetFetchResponseTopic:
    return offset_fetch.OffsetFetchResponseTopic(
        topic.name,
        [
            offset_fetch.OffsetFetchResponsePartition(number, NO_OFFSET, -1, "", code)
            for number in topic.partition_indexes
        ],
    )


def _offsets_of_groups(asking: Asking, message: offset_fetch.OffsetFetchRequest) -> Plan:
    ids = [topic.topic_id for group in message.groups for topic in group.topics or () if is_by_id(topic)]
    names = yield from asking.names(ids)
    whole_groups, refused = divided(asking, message.groups, _DESCRIBE_GROUP, {})
    told = [offset_fetch.OffsetFetchResponseGroup(each.group_id, [], code) for each, code in refused]
    everything: set[str] = set()
    left_out: dict[str, list[tuple[Any, int]]] = {}
    for group in whole_groups:
        if group.topics is None:
            everything.add(group.group_id)
        else:
            group.topics, left_out[group.group_id] = divided(asking, group.topics, _DESCRIBE_TOPIC, names)
    if not told and not everything and not any(left_out.values()):
        return (yield from asking.pass_on())
    if not whole_groups:
        return offset_fetch.OffsetFetchResponse(groups=told)
    message.groups = whole_groups
    answer = yield from asking.go_on(message, offset_fetch.OffsetFetchResponse)
    if not isinstance(answer, offset_fetch.OffsetFetchResponse):
        return answer
    found = yield from asking.names(
        [topic.topic_id for group in answer.groups for topic in group.topics if is_by_id(topic)]
    )
    for group in answer.groups:
        if group.group_id in everything:
            group.topics = [
                each
                for each in group.topics
                if asking.shows(DESCRIBE, TOPIC, found.get(each.topic_id, "") if is_by_id(each) else each.name)
            ]
        group.topics += [
            offset_fetch.OffsetFetchResponseTopics(
                topic.name,
                topic.topic_id,
                [
                    offset_fetch.OffsetFetchResponsePartitions(number, NO_OFFSET, -1, "", code)
                    for number in topic.partition_indexes
                ],
            )
            for topic, code in left_out.get(group.group_id, ())
        ]
    answer.groups += told
    return answer


def guard_describe_share_group_offsets(asking: Asking) -> Plan:
    shapes = describe_share_group_offsets
    message = asking.request.decode(shapes.DescribeShareGroupOffsetsRequest)
    kept, refused = divided(asking, message.groups, _DESCRIBE_GROUP, {})
    told = [
        shapes.DescribeShareGroupOffsetsResponseGroup(each.group_id, [], code, words_of(code)) for each, code in refused
    ]
    left_out: dict[str, list[tuple[Any, int]]] = {}
    need = needs(DESCRIBE, TOPIC, "topic_name")
    for group in kept:
        if group.topics is not None:
            group.topics, left_out[group.group_id] = divided(asking, group.topics, need, {})
    if not kept and told:
        return shapes.DescribeShareGroupOffsetsResponse(groups=told)
    message.groups = kept
    answer = yield from asking.go_on(message, shapes.DescribeShareGroupOffsetsResponse)
    if not isinstance(answer, shapes.DescribeShareGroupOffsetsResponse):
        return answer
    for group in answer.groups:
        group.topics = [each for each in group.topics if asking.shows(DESCRIBE, TOPIC, each.topic_name)]
        group.topics += [
            shapes.DescribeShareGroupOffsetsResponseTopic(
                topic.topic_name,
                partitions=[
                    shapes.DescribeShareGroupOffsetsResponsePartition(
                        number, NO_OFFSET, error_code=code, error_message=words_of(code)
                    )
                    for number in topic.partitions
                ],
            )
            for topic, code in left_out.get(group.group_id, ())
        ]
    answer.groups += told
    return answer


# --- transactions ----------------------------------------------------------------------------------------------------


def guard_add_partitions(asking: Asking) -> Plan:
    """If one topic is refused, the broker attempts none."""
    shapes = add_partitions_to_txn
    message = asking.request.decode(shapes.AddPartitionsToTxnRequest)
    asked = message.v3_and_below_topics
    code = needs(Operation.WRITE, TRANSACTION, "v3_and_below_transactional_id")(asking, message)
    if code:
        kept: list[Any] = []
        left_out: list[tuple[Any, int]] = [(each, code) for each in asked]
    else:
        kept, left_out = divided(asking, asked, needs(Operation.WRITE, TOPIC, "name"), {})
    if not left_out:
        return (yield from asking.pass_on())
    left_out += [(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in kept]
    results = [
        shapes.AddPartitionsToTxnTopicResult(
            topic.name, [shapes.AddPartitionsToTxnPartitionResult(number, code) for number in topic.partitions]
        )
        for topic, code in left_out
    ]
    return shapes.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def may_begin(asking: Asking, message: Any) -> int:
    """A need of InitProducerId."""
    if message.transactional_id is not None:
        code = needs(Operation.WRITE, TRANSACTION, "transactional_id")(asking, message)
        if not code and message.enable2_pc:
            code = needs(Operation.TWO_PHASE_COMMIT, TRANSACTION, "transactional_id")(asking, message)
        return code
    if asking.access.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
        return 0
    if asking.access.allows_somewhere(Operation.WRITE, TOPIC):
        return 0
    return cluster(Operation.IDEMPOTENT_WRITE)(asking, message)


def guard_describe_transactions(asking: Asking) -> Plan:
    shapes = describe_transactions
    message = asking.request.decode(shapes.DescribeTransactionsRequest)
    need = needs(DESCRIBE, TRANSACTION, "transactional_id")
    kept, left_out = divided(asking, message.transactional_ids, need, {})
    answer = shapes.DescribeTransactionsResponse()
    if kept or not left_out:
        message.transactional_ids = kept
        given = yield from asking.go_on(message, shapes.DescribeTransactionsResponse)
        if not isinstance(given, shapes.DescribeTransactionsResponse):
            return given
        answer = given
    for each in answer.transaction_states:
        each.topics = [topic for topic in each.topics if asking.shows(DESCRIBE, TOPIC, topic.topic)]
    answer.transaction_states += [shapes.TransactionState(code, name) for name, code in left_out]
    return answer


def guard_list_transactions(asking: Asking) -> Plan:
    answer = yield from asking.answer(list_transactions.ListTransactionsResponse)
    if isinstance(answer, list_transactions.ListTransactionsResponse):
        answer.transaction_states = [
            each for each in answer.transaction_states if asking.shows(DESCRIBE, TRANSACTION, each.transactional_id)
        ]
    return answer
