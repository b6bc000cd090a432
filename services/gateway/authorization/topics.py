"""Guards of requests about topics: a client sees the topics that it may describe."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from mesh.acls import OPERATIONS_OF, Operation, ResourceType
from mesh.acls.acl import CLUSTER_NAME
from services.gateway.authorization.asking import Asking
from services.gateway.requests.pauses import PAUSE, few_at_a_time
from services.gateway.requests.plan import Close, Command, NoAnswer, Plan
from services.gateway.wire.error_words import words_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import create_topics, delete_topics, describe_cluster, metadata
from services.gateway.wire.messages import describe_topic_partitions as parts
from services.gateway.wire.schema import NO_UUID

TOPIC = ResourceType.TOPIC
CREATION_CAN_BE_FORBIDDEN = 4
"""The first version of Metadata in which a client says whether a missing topic may be created."""
_KNOWN = {kind: sum(each.bit for each in operations) for kind, operations in OPERATIONS_OF.items()}

UNTOLD: Final = -0x8000_0000
"""The cluster does not say which operations it allows."""

Answered = metadata.MetadataResponse | NoAnswer | Close


def authorized(asking: Asking, kind: ResourceType, name: str, told: int = UNTOLD) -> int:
    """The operations that the client may do, of those that the kind of resource knows, as Kafka's bits.

    `told`: those that the resource's cluster allows by its own ACLs, which count, too.
    """
    allowed = asking.access.operations(kind, name) & _KNOWN[kind]
    return allowed if told == UNTOLD else allowed & told


def cluster_operations(asking: Asking) -> int:
    """As on brokers: none for a client that may not describe the cluster."""
    allowed = authorized(asking, ResourceType.CLUSTER, CLUSTER_NAME)
    return allowed if allowed & Operation.DESCRIBE.bit else 0


def may_create(asking: Asking, name: str) -> bool:
    """Says nothing of a refusal."""
    access = asking.access
    return access.allows(Operation.CREATE, ResourceType.CLUSTER) or access.allows(Operation.CREATE, TOPIC, name)


# --- Metadata --------------------------------------------------------------------------------------------------------


def guard_metadata(asking: Asking) -> Plan:
    message = asking.request.decode(metadata.MetadataRequest)
    if message.topics is None or (asking.request.version == 0 and not message.topics):
        answer = yield from asking.answer(metadata.MetadataResponse)
        if isinstance(answer, metadata.MetadataResponse):
            topics, answer.topics = answer.topics, []
            for some in few_at_a_time(topics):
                answer.topics += [each for each in some if asking.shows(Operation.DESCRIBE, TOPIC, each.name or "")]
                if topics:
                    yield PAUSE
        return _with_operations(asking, message, answer)
    names = yield from asking.names([each.topic_id for each in message.topics if each.name is None])
    kept: list[metadata.MetadataRequestTopic] = []
    hidden: list[metadata.MetadataResponseTopic] = []
    for topic in message.topics:
        name = names.get(topic.topic_id) if topic.name is None else topic.name
        if name is None and asking.enforces and topic.topic_id != NO_UUID:
            hidden.append(_hidden(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif name is None or asking.may(Operation.DESCRIBE, TOPIC, name):
            kept.append(topic)
        else:
            hidden.append(_hidden(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    if message.allow_auto_topic_creation and not all(may_create(asking, each.name or "") for each in kept):
        answer = yield from _without_creation(asking, message, kept)
    elif not hidden:
        answer = yield from asking.answer(metadata.MetadataResponse)
    else:
        message.topics = kept
        answer = yield from _go_on(asking, message)
    if isinstance(answer, metadata.MetadataResponse):
        answer.topics += hidden
    return _with_operations(asking, message, answer)


def _hidden(topic: metadata.MetadataRequestTopic, code: int) -> metadata.MetadataResponseTopic:
    """A client that asks by id does not hear the topic's name; its id is no secret."""
    return metadata.MetadataResponseTopic(code, topic.name, topic.topic_id if topic.name is None else NO_UUID)


def _go_on(asking: Asking, message: metadata.MetadataRequest) -> Generator[Command, Any, Answered]:
    """In version 0, a request without a topic would ask for all: a version with the same answer says what is meant."""
    return (yield from asking.go_on(message, metadata.MetadataResponse, least=CREATION_CAN_BE_FORBIDDEN))


def _without_creation(
    asking: Asking, message: metadata.MetadataRequest, kept: list[metadata.MetadataRequestTopic]
) -> Generator[Command, Any, Answered]:
    """The client may not create some of the topics: if one of those is missing, that is the client's error."""
    other: list[metadata.MetadataRequestTopic] = []
    mine: list[metadata.MetadataRequestTopic] = []
    for topic in kept:
        (mine if may_create(asking, topic.name or "") else other).append(topic)
    message.topics, message.allow_auto_topic_creation = other, not asking.enforces
    answer = yield from _go_on(asking, message)
    if not isinstance(answer, metadata.MetadataResponse):
        return answer
    for each in answer.topics:
        missing = each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and each.name is not None
        if missing and not asking.refused(Operation.CREATE, TOPIC, each.name or ""):
            each.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if mine:
        message.topics, message.allow_auto_topic_creation = mine, True
        more = yield from _go_on(asking, message)
        if not isinstance(more, metadata.MetadataResponse):
            return more
        answer.topics += more.topics
    return answer


def _with_operations(asking: Asking, message: metadata.MetadataRequest, answer: Answered) -> Answered:
    if not isinstance(answer, metadata.MetadataResponse) or not asking.enforces:
        return answer
    if message.include_topic_authorized_operations:
        for topic in answer.topics:
            if topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED and topic.name is not None:
                told = topic.topic_authorized_operations
                topic.topic_authorized_operations = authorized(asking, TOPIC, topic.name, told)
    if message.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = cluster_operations(asking)
    return answer


# --- others ----------------------------------------------------------------------------------------------------------


def guard_describe_cluster(asking: Asking) -> Plan:
    """Every client may ask: the answer tells who may do what with the cluster."""
    message = asking.request.decode(describe_cluster.DescribeClusterRequest)
    answer = yield from asking.answer(describe_cluster.DescribeClusterResponse)
    if (
        isinstance(answer, describe_cluster.DescribeClusterResponse)
        and asking.enforces
        and message.include_cluster_authorized_operations
    ):
        answer.cluster_authorized_operations = cluster_operations(asking)
    return answer


def guard_describe_topic_partitions(asking: Asking) -> Plan:
    message = asking.request.decode(parts.DescribeTopicPartitionsRequest)
    hidden: list[parts.DescribeTopicPartitionsResponseTopic] = []
    if message.topics:
        kept = []
        for topic in message.topics:
            if asking.may(Operation.DESCRIBE, TOPIC, topic.name):
                kept.append(topic)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                hidden.append(parts.DescribeTopicPartitionsResponseTopic(code, topic.name))
        if not kept:
            return parts.DescribeTopicPartitionsResponse(topics=hidden)
        message.topics = kept
    answer = parts.DescribeTopicPartitionsResponse(topics=hidden)
    while True:
        page = yield from asking.go_on(message, parts.DescribeTopicPartitionsResponse)
        if not isinstance(page, parts.DescribeTopicPartitionsResponse):
            return page
        answer.topics += [each for each in page.topics if asking.shows(Operation.DESCRIBE, TOPIC, each.name or "")]
        cursor = page.next_cursor
        if cursor is None or asking.shows(Operation.DESCRIBE, TOPIC, cursor.topic_name):
            answer.next_cursor = cursor
            break
        message.cursor = cursor  # its name is not for this client, who goes on behind it
    if asking.enforces:
        for topic_told in answer.topics:
            if topic_told.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                told = topic_told.topic_authorized_operations
                topic_told.topic_authorized_operations = authorized(asking, TOPIC, topic_told.name or "", told)
    return answer


def guard_create_topics(asking: Asking) -> Plan:
    message = asking.request.decode(create_topics.CreateTopicsRequest)
    kept, told = [], []
    for topic in message.topics:
        if may_create(asking, topic.name) or asking.refused(Operation.CREATE, TOPIC, topic.name):
            kept.append(topic)
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            told.append(create_topics.CreatableTopicResult(topic.name, NO_UUID, code, words_of(code)))
    answer: create_topics.CreateTopicsResponse | NoAnswer | Close = create_topics.CreateTopicsResponse()
    if kept or not told:
        message.topics = kept
        answer = yield from asking.go_on(message, create_topics.CreateTopicsResponse)
    if not isinstance(answer, create_topics.CreateTopicsResponse):
        return answer
    for each in answer.topics:
        if each.error_code == 0 and not asking.shows(Operation.DESCRIBE_CONFIGS, TOPIC, each.name):
            each.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            each.num_partitions = each.replication_factor = -1
            each.configs = []
    answer.topics += told
    return answer


def guard_delete_topics(asking: Asking) -> Plan:
    """By name, a client must be allowed to describe the topic, too. By id, it hears the names of such topics alone."""
    if asking.access.allows(Operation.DELETE, ResourceType.CLUSTER):
        return (yield from asking.pass_on())
    message = asking.request.decode(delete_topics.DeleteTopicsRequest)
    names = yield from asking.names([each.topic_id for each in message.topics if each.name is None])
    told: list[delete_topics.DeletableTopicResult] = []

    def refuse(name: str | None, topic_id: bytes, code: int) -> None:
        told.append(delete_topics.DeletableTopicResult(name, topic_id, code, words_of(code)))

    def may_delete(name: str) -> bool:
        return all(asking.may(each, TOPIC, name) for each in (Operation.DESCRIBE, Operation.DELETE))

    states = []
    for topic in message.topics:
        name = names.get(topic.topic_id) if topic.name is None else topic.name
        if name is None:
            if asking.enforces:
                refuse(None, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                states.append(topic)
        elif may_delete(name) if topic.name else asking.may(Operation.DELETE, TOPIC, name):
            states.append(topic)
        else:
            shown = name if topic.name or asking.shows(Operation.DESCRIBE, TOPIC, name) else None
            refuse(shown, topic.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    named = []
    for name in message.topic_names:
        if may_delete(name):
            named.append(name)
        else:
            refuse(name, NO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not told:
        return (yield from asking.pass_on())
    if not states and not named:
        return delete_topics.DeleteTopicsResponse(responses=told)
    message.topics, message.topic_names = states, named
    answer = yield from asking.go_on(message, delete_topics.DeleteTopicsResponse)
    if isinstance(answer, delete_topics.DeleteTopicsResponse):
        answer.responses += told
    return answer
