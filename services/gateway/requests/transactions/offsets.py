"""AddOffsetsToTxn and TxnOffsetCommit: a group's offsets that count when the transaction is committed.

Theory of operation
1. Offsets are on the clusters of the group's other offsets: beside their topics, or all on the group's home if a rule
   says so. Each of these clusters has a part of the transaction, as if records went there.
2. The gateway first checks a member's offsets on the group's home, as for other commits (`groups.offset_commit`): only
   that coordinator can distinguish a member from a member that was replaced. The other clusters get the offsets without
   a member.
3. AddOffsetsToTxn names no topics yet. It adds the group on the group's home; TxnOffsetCommit adds the group on any
   other cluster. With the second protocol brokers do this themselves.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from mesh.transactions import Identity
from services.gateway.requests.groups.group_home import find_home, offsets_place
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.groups.group_topic_ids import name_topics
from services.gateway.requests.groups.offset_commit import GROUP_ERRORS, member_fault
from services.gateway.requests.groups.partition_errors import PartitionErrors
from services.gateway.requests.plan import Command, Coordinator, Forget, MeshView, Plan, Request
from services.gateway.requests.transactions.coordinator import SECOND_PROTOCOL, ask_coordinator, coordinator_of
from services.gateway.requests.transactions.home import takes_part, tell_refused, transaction_home
from services.gateway.requests.transactions.parts import FENCED, FENCED_SOON, forget_part, part_on
from services.gateway.requests.transactions.registry import open_at_home, open_where_known
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from services.gateway.wire.messages.offset_commit import OffsetCommitRequest
from services.gateway.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FOREIGN_OFFSETS = ErrorCode.GROUP_AUTHORIZATION_FAILED
"""The error for offsets on a cluster that takes no part in transactions of other clusters: it names the group, and the
transaction can only be aborted."""
IDS_SINCE = 6
"""First version of TxnOffsetCommit that has ids in the place of the topics' names (KIP-1319)."""
ADD_VERSION = 3
"""The version of AddOffsetsToTxn that the gateway sends by itself."""
FENCED_SINCE = 2
"""The first version of AddOffsetsToTxn in which PRODUCER_FENCED is one of its errors."""


def handle_add(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AddOffsetsToTxnRequest)
    home = transaction_home(message.transactional_id, mesh)
    group_home = yield from find_home(message.group_id, mesh)
    if home is None or group_home is None:
        if home is not None:
            yield from open_at_home(home, message.transactional_id, _presented(message), mesh)
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if group_home != home and not (takes_part(home, mesh) and takes_part(group_home, mesh)):
        group_home = home  # it may be without a member: TxnOffsetCommit will tell
    error = yield from _add(group_home, message, request.version, home, mesh)
    if error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        error = yield from open_where_known(home, message.transactional_id, _presented(message), mesh)
    old = request.version < FENCED_SINCE and error is ErrorCode.PRODUCER_FENCED
    return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH if old else error)


def _add(
    cluster: str, message: AddOffsetsToTxnRequest, version: int, home: str, mesh: MeshView
) -> Generator[Command, Any, ErrorCode]:
    """Adds the group to the transaction on one cluster."""
    presented = _presented(message)
    transactional_id = message.transactional_id
    identity = yield from part_on(cluster, transactional_id, presented, home, mesh, registers=True)
    if isinstance(identity, ErrorCode):
        if identity.retriable:
            yield from open_at_home(home, transactional_id, presented, mesh)
        return identity
    part = replace(message, producer_id=identity.producer_id, producer_epoch=identity.epoch)
    coordinator = coordinator_of(transactional_id)
    outcome = yield from ask_coordinator(cluster, coordinator, part, version, AddOffsetsToTxnResponse, mesh)
    error = outcome if isinstance(outcome, ErrorCode) else ErrorCode(outcome.error_code)
    if cluster != home and error in FENCED:
        forget_part(cluster, transactional_id, mesh)
        return FENCED_SOON
    return error


def _presented(message: AddOffsetsToTxnRequest) -> Identity:
    return Identity(message.producer_id, message.producer_epoch)


def handle_commit(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(TxnOffsetCommitRequest)
    if request.version < IDS_SINCE:
        return (yield from _committed(message, request.version, mesh))
    known = yield from name_topics(message.topics, mesh)
    strange = [topic for topic in message.topics if not topic.name]
    answer = yield from _committed(replace(message, topics=known), IDS_SINCE - 1, mesh)
    answer.topics += _answer(replace(message, topics=strange), ErrorCode.UNKNOWN_TOPIC_ID).topics
    return answer


def _committed(
    message: TxnOffsetCommitRequest, version: int, mesh: MeshView
) -> Generator[Command, Any, TxnOffsetCommitResponse]:
    """The answer to a request in a version that names topics."""
    home = transaction_home(message.transactional_id, mesh)
    if home is None:
        return _answer(message, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    errors = PartitionErrors()
    parts: dict[str, list[TxnOffsetCommitRequestTopic]] = {}
    for topic in message.topics:
        place = offsets_place(message.group_id, topic.name, mesh)
        if mesh.undecided is not None and mesh.undecided(topic.name):
            errors.settle([topic], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        elif place is None:
            errors.settle([topic], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            parts.setdefault(place, []).append(topic)
    closed = {place for place in parts if place != home and not (takes_part(home, mesh) and takes_part(place, mesh))}
    if closed:
        foreign = {topic.name: place for place in closed for topic in parts[place]}
        tell_refused("TxnOffsetCommit", message.transactional_id, home, foreign)
        return _answer(message, FOREIGN_OFFSETS)
    group_home: str | None = None
    if message.generation_id_or_member_epoch >= 0 or message.member_id:
        group_home = yield from find_home(message.group_id, mesh)
        if group_home is None:
            return _answer(message, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        fault = yield from _members_part(message, version, parts, group_home, home, errors, mesh)
        if fault is not None:
            return _answer(message, fault)
    plain = replace(message, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None)
    for cluster, topics in parts.items():
        if cluster != group_home:
            part, adds = replace(plain, topics=topics), len(mesh.table.clusters) > 1
            yield from _commit(cluster, part, version, home, errors, mesh, adds=adds)
    return _answer(message, errors)


def _members_part(
    message: TxnOffsetCommitRequest,
    version: int,
    parts: dict[str, list[TxnOffsetCommitRequestTopic]],
    group_home: str,
    home: str,
    errors: PartitionErrors,
    mesh: MeshView,
) -> Generator[Command, Any, int | None]:
    """Commits the offsets on the group's home, if there are any. Returns the error that prevents all other commits."""
    topics = parts.get(group_home)
    if topics is None:
        member = OffsetCommitRequest(
            message.group_id, message.generation_id_or_member_epoch, message.member_id, message.group_instance_id
        )
        return (yield from member_fault(member, group_home, mesh))
    yield from _commit(group_home, replace(message, topics=topics), version, home, errors, mesh, adds=False)
    codes = {errors.of(topic.name, p.partition_index) for topic in topics for p in topic.partitions}
    return next((code for code in codes if code in GROUP_ERRORS), None)


def _commit(
    cluster: str,
    message: TxnOffsetCommitRequest,
    version: int,
    home: str,
    errors: PartitionErrors,
    mesh: MeshView,
    *,
    adds: bool,
) -> Generator[Command, Any, None]:
    """`adds`: nobody has added the group to the transaction on this cluster yet."""
    transactional_id = message.transactional_id
    presented = Identity(message.producer_id, message.producer_epoch)
    if adds and version < SECOND_PROTOCOL[ApiKey.TXN_OFFSET_COMMIT]:
        added = AddOffsetsToTxnRequest(transactional_id, *presented, message.group_id)
        error = yield from _add(cluster, added, ADD_VERSION, home, mesh)
        if error:
            errors.settle(message.topics, _as_of_offsets(error))
            return
    identity = yield from part_on(cluster, transactional_id, presented, home, mesh)
    if isinstance(identity, ErrorCode):
        errors.settle(message.topics, _as_of_offsets(identity))
        return
    part = replace(message, producer_id=identity.producer_id, producer_epoch=identity.epoch)
    coordinator = Coordinator(message.group_id)
    outcome = yield from ask_coordinator(cluster, coordinator, part, version, TxnOffsetCommitResponse, mesh)
    if isinstance(outcome, ErrorCode):
        errors.settle(message.topics, outcome)
        return
    codes = {p.error_code for topic in outcome.topics for p in topic.partitions}
    if codes & COORDINATOR_MOVED:
        yield Forget(cluster, coordinator)
    if cluster != home and codes & FENCED:
        forget_part(cluster, transactional_id, mesh)
        errors.settle(message.topics, ErrorCode.TRANSACTION_ABORTABLE)
        return
    errors.take(outcome.topics)


def _as_of_offsets(error: ErrorCode) -> ErrorCode:
    """The error in a form of TxnOffsetCommit, which has fewer errors: every client retries
    COORDINATOR_LOAD_IN_PROGRESS."""
    if error.retriable:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


def _answer(message: TxnOffsetCommitRequest, errors: PartitionErrors | int) -> TxnOffsetCommitResponse:
    def error_of(topic: str, partition: int) -> int:
        return errors if isinstance(errors, int) else errors.of(topic, partition)

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [
                    TxnOffsetCommitResponsePartition(p.partition_index, error_of(topic.name, p.partition_index))
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
