"""Guards of requests about records: Produce, Fetch and their share groups."""

from __future__ import annotations

from typing import Any, Final

from mesh.acls import Operation, ResourceType
from services.gateway.authorization.asking import Asking
from services.gateway.authorization.shapes import cluster, divided, is_by_id, needs
from services.gateway.requests.groups.share_sessions import FINAL_EPOCH as LAST_OF_SHARE
from services.gateway.requests.groups.share_sessions import INITIAL_EPOCH as FIRST_OF_SHARE
from services.gateway.requests.older.rewriting import known_code
from services.gateway.requests.plan import Close, NoAnswer, Plan
from services.gateway.requests.records.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from services.gateway.requests.topic_ids import topic_name
from services.gateway.wire.error_words import words_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import fetch, produce, share_acknowledge, share_fetch
from services.gateway.wire.scanner import scan_produce
from services.gateway.wire.scanner.bounds import IDS_SINCE

NO_OFFSET: Final = -1
_WRITE: Final = needs(Operation.WRITE, ResourceType.TOPIC, "name")
_WRITE_TRANSACTION: Final = needs(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")
_READ: Final = needs(Operation.READ, ResourceType.TOPIC, "topic")
_FOLLOW: Final = cluster(Operation.CLUSTER_ACTION)
_READ_BY_ID: Final = needs(Operation.READ, ResourceType.TOPIC, "name")
_READ_GROUP: Final = needs(Operation.READ, ResourceType.GROUP, "group_id")


def guard_produce(asking: Asking) -> Plan:
    if _may_write_all(asking):
        return (yield from asking.pass_on())
    message = asking.request.decode(produce.ProduceRequest)
    transaction = 0 if message.transactional_id is None else _WRITE_TRANSACTION(asking, message)
    if transaction:
        left_out = [(topic, transaction) for topic in message.topic_data]
        kept: list[Any] = []
    else:
        names = yield from asking.names([each.topic_id for each in message.topic_data if is_by_id(each)])
        kept, left_out = divided(asking, message.topic_data, _WRITE, names)
    if not left_out:
        return (yield from asking.pass_on())
    answer: produce.ProduceResponse | NoAnswer | Close = produce.ProduceResponse()
    if kept:
        message.topic_data = kept
        answer = yield from asking.go_on(message, produce.ProduceResponse)
    if message.acks == 0:
        return Close("records without acks for a topic that the client may not write to: as a broker, see the audit")
    if isinstance(answer, produce.ProduceResponse):
        answer.responses += [_not_written(topic, _code(asking, code)) for topic, code in left_out]
    return answer


def _may_write_all(asking: Asking) -> bool:
    """Whether nothing is to be refused, by the places of the names alone: to read all of the request takes 30 us."""
    request, access = asking.request, asking.access
    if request.version < asking.handler.versions.low:
        return False
    by_id = request.version >= IDS_SINCE
    scan = scan_produce(request.frame, request.version, request.header.body_offset, len(request.frame))
    transaction = scan.transactional_id
    if transaction is not None and not access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction):
        return False
    names = [topic_name(asking.mesh, each.topic_id) if by_id else each.name for each in scan.topics]
    return all(name is not None and access.allows(Operation.WRITE, ResourceType.TOPIC, name) for name in names)


def _not_written(topic: produce.TopicProduceData, code: int) -> produce.TopicProduceResponse:
    partitions = [produce.PartitionProduceResponse(each.index, code, NO_OFFSET) for each in topic.partition_data]
    return produce.TopicProduceResponse(topic.name, topic.topic_id, partitions)


def _code(asking: Asking, code: int) -> int:
    """The error for clients whose versions are translated: they know few."""
    version = asking.request.version
    return known_code(code, version) if version < asking.handler.versions.low else code


def guard_fetch(asking: Asking) -> Plan:
    """A session keeps partitions that later requests do not name.

    So a session with a topic that its client may no longer read ends: the client then asks in full. An answer to a
    request in full that leaves out a topic begins no session. So the client goes on to ask in full, and notices when it
    may read.
    """
    message = asking.request.decode(fetch.FetchRequest)
    if message.replica_id >= 0 or message.replica_state.replica_id >= 0:
        if _FOLLOW(asking, message):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return _not_read(asking, message, [(topic, code) for topic in message.topics])
        return (yield from asking.pass_on())
    goes_on = message.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
    session = asking.mesh.memory.fetch_sessions.get(message.session_id) if goes_on else None
    kept_topics = {topic for topic, _ in session.wanted} if session is not None else set()
    ids = {topic for topic in kept_topics if isinstance(topic, bytes)}
    names = yield from asking.names([*ids, *(each.topic_id for each in message.topics if is_by_id(each))])
    kept, left_out = divided(asking, message.topics, _READ, names)
    for topic in kept_topics:
        name = names.get(topic) if isinstance(topic, bytes) else topic
        if name is None:
            is_left_out = asking.enforces
        else:
            is_left_out = bool(_READ_BY_ID(asking, name))
        if is_left_out:
            return fetch.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if not left_out:
        return (yield from asking.pass_on())
    if goes_on:
        return fetch.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if not kept:
        return _not_read(asking, message, left_out)
    message.topics, message.session_id, message.session_epoch = kept, NO_SESSION, FINAL_EPOCH
    answer = yield from asking.go_on(message, fetch.FetchResponse)
    if isinstance(answer, fetch.FetchResponse):
        answer.responses += _not_read(asking, message, left_out).responses
    return answer


def _not_read(asking: Asking, message: fetch.FetchRequest, left_out: list[tuple[Any, int]]) -> fetch.FetchResponse:
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                [
                    fetch.PartitionData(
                        each.partition,
                        _code(asking, code),
                        high_watermark=NO_OFFSET,
                        last_stable_offset=NO_OFFSET,
                        log_start_offset=NO_OFFSET,
                        preferred_read_replica=-1,
                        records=b"",
                    )
                    for each in topic.partitions
                ],
            )
            for topic, code in left_out
        ]
    )


def guard_share_fetch(asking: Asking) -> Plan:
    message = asking.request.decode(share_fetch.ShareFetchRequest)
    code = _READ_GROUP(asking, message)
    if code:
        return share_fetch.ShareFetchResponse(error_code=code, error_message=words_of(code))
    names = yield from asking.names([each.topic_id for each in message.topics])
    kept, left_out = divided(asking, message.topics, _READ_BY_ID, names)
    if _keeps_refused(asking, message):
        code = ErrorCode.SHARE_SESSION_NOT_FOUND
        return share_fetch.ShareFetchResponse(error_code=code, error_message=words_of(code))
    if not left_out:
        return (yield from asking.pass_on())
    message.topics = kept
    answer = yield from asking.go_on(message, share_fetch.ShareFetchResponse)
    if isinstance(answer, share_fetch.ShareFetchResponse):
        answer.responses += [
            share_fetch.ShareFetchableTopicResponse(
                topic.topic_id,
                [
                    share_fetch.PartitionData(
                        each.partition_index, code, words_of(code), current_leader=share_fetch.LeaderIdAndEpoch(-1, -1)
                    )
                    for each in topic.partitions
                ],
            )
            for topic, code in left_out
        ]
    return answer


def guard_share_acknowledge(asking: Asking) -> Plan:
    message = asking.request.decode(share_acknowledge.ShareAcknowledgeRequest)
    code = _READ_GROUP(asking, message)
    if code:
        return share_acknowledge.ShareAcknowledgeResponse(error_code=code, error_message=words_of(code))
    names = yield from asking.names([each.topic_id for each in message.topics])
    kept, left_out = divided(asking, message.topics, _READ_BY_ID, names)
    if not left_out:
        return (yield from asking.pass_on())
    message.topics = kept
    answer = yield from asking.go_on(message, share_acknowledge.ShareAcknowledgeResponse)
    if isinstance(answer, share_acknowledge.ShareAcknowledgeResponse):
        answer.responses += [
            share_acknowledge.ShareAcknowledgeTopicResponse(
                topic.topic_id,
                [
                    share_acknowledge.PartitionData(
                        each.partition_index,
                        code,
                        words_of(code),
                        current_leader=share_acknowledge.LeaderIdAndEpoch(-1, -1),
                    )
                    for each in topic.partitions
                ],
            )
            for topic, code in left_out
        ]
    return answer


def _keeps_refused(asking: Asking, message: share_fetch.ShareFetchRequest) -> bool:
    """Whether the share session has a topic that its client may no longer read: then the client begins a new one."""
    if message.share_session_epoch in (FIRST_OF_SHARE, LAST_OF_SHARE):
        return False
    member = (message.group_id or "", message.member_id or "")
    sessions = asking.mesh.memory.share_sessions.of(member).values()
    topics = {slot.topic for session in sessions for slot in session.wanted}
    return any(_READ_BY_ID(asking, topic) for topic in topics)
