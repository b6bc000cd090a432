"""AddOffsetsToTxn and TxnOffsetCommit: a group's offsets that count when the transaction is committed.

Exact where one cluster has all of it: the transaction, the topics that were read, since offsets lie beside their
topics, and the group, when a member commits: its coordinator alone can tell a member from one that was replaced.
Offsets without a member (manual assignment) need no such check. AddOffsetsToTxn names no topics yet: it only says that
offsets may follow, and may pass.
"""

from collections.abc import Generator
from typing import Any

import structlog

from services.gateway.requests.groups.group_home import find_home, offsets_place
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.plan import Command, Coordinator, Forget, MeshView, Plan, Request
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.home import tell_refused, transaction_home
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from services.gateway.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FOREIGN_OFFSETS = ErrorCode.GROUP_AUTHORIZATION_FAILED
"""For offsets that the transaction's cluster can't keep: names the group, and the transaction can only be aborted."""

log = structlog.get_logger(__name__)


def handle_add(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AddOffsetsToTxnRequest)
    home = transaction_home(message.transactional_id, mesh)
    coordinator = coordinator_of(message.transactional_id)
    outcome = yield from ask_coordinator(home, coordinator, message, request.version, AddOffsetsToTxnResponse, mesh)
    return AddOffsetsToTxnResponse(error_code=outcome) if isinstance(outcome, ErrorCode) else outcome


def handle_commit(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(TxnOffsetCommitRequest)
    home = transaction_home(message.transactional_id, mesh)
    refused = yield from _refusal(message, home, mesh)
    if refused is not None:
        return _answer(message, refused)
    coordinator = Coordinator(message.group_id)
    outcome = yield from ask_coordinator(home, coordinator, message, request.version, TxnOffsetCommitResponse, mesh)
    if isinstance(outcome, ErrorCode):
        return _answer(message, outcome)
    if home is not None and any(p.error_code in COORDINATOR_MOVED for t in outcome.topics for p in t.partitions):
        yield Forget(home, coordinator)
    return outcome


def _refusal(
    message: TxnOffsetCommitRequest, home: str | None, mesh: MeshView
) -> Generator[Command, Any, ErrorCode | None]:
    """Why the transaction's cluster may not keep these offsets, if so."""
    places = {topic.name: offsets_place(message.group_id, topic.name, mesh) for topic in message.topics}
    foreign = {topic: place for topic, place in places.items() if place not in (None, home)}
    if foreign:
        tell_refused("TxnOffsetCommit", message.transactional_id, home, foreign)
        return FOREIGN_OFFSETS
    if message.generation_id_or_member_epoch < 0 and not message.member_id:
        return None
    group_home = yield from find_home(message.group_id, mesh)
    if group_home is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group_home == home:
        return None
    log.warning(
        "TxnOffsetCommit refused: the group's members are known on another cluster than the transaction; "
        "bring the transactional id or the group there by a rule",
        transactional_id=message.transactional_id,
        transaction_on=home,
        group=message.group_id,
        group_on=group_home,
    )
    return FOREIGN_OFFSETS


def _answer(message: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                partitions=[TxnOffsetCommitResponsePartition(p.partition_index, error) for p in topic.partitions],
            )
            for topic in message.topics
        ]
    )
