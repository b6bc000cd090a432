"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: byte for byte to the coordinator on the group's home cluster.

A coordinator never reads the topics or assignments of the classic protocol, so members may subscribe to topics of
several clusters. The assignors in the clients see the gateway's merged Metadata.
"""

from collections.abc import Generator, Sequence
from typing import Any

from services.gateway.requests.groups.group_home import find_home
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    Call,
    Command,
    Coordinator,
    Forget,
    Lane,
    MeshView,
    Plan,
    Request,
    Unreachable,
    Verbatim,
    ask_raw,
)
from services.gateway.requests.traffic.calls import named_group
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.consumer_protocol import subscription_of
from services.gateway.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from services.gateway.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from services.gateway.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from services.gateway.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from services.gateway.wire.primitives import WireError

REBALANCE_SLACK_S = 10.0
"""Seconds that the gateway waits beyond the member's own rebalance time-out."""
LONGEST_REBALANCE_S = 3600.0
SYNC_TIMEOUT_S = 310.0
"""A SyncGroup waits for the group's leader, which has the rebalance time-out: 300 s by default, and some seconds on the
way."""

MemberResponse = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse


def handle_join_group(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(JoinGroupRequest)
    named_group(mesh, message.group_id)
    wait_ms = max(message.session_timeout_ms, message.rebalance_timeout_ms)
    timeout_s = min(wait_ms / 1000, LONGEST_REBALANCE_S) + REBALANCE_SLACK_S
    home = yield from find_home(message.group_id, mesh, subscription(message))
    failed = JoinGroupResponse(member_id=message.member_id, protocol_name="" if request.version < 7 else None)
    return (yield from _pass_on(request, mesh, home, message.group_id, failed, Lane.BLOCKING, timeout_s))


def handle_sync_group(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(SyncGroupRequest)
    home = yield from find_home(message.group_id, mesh)
    return (
        yield from _pass_on(request, mesh, home, message.group_id, SyncGroupResponse(), Lane.BLOCKING, SYNC_TIMEOUT_S)
    )


def handle_heartbeat(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(HeartbeatRequest)
    home = yield from find_home(message.group_id, mesh)
    return (
        yield from _pass_on(request, mesh, home, message.group_id, HeartbeatResponse(), Lane.CLIENT, CALL_TIMEOUT_S)
    )


def handle_leave_group(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(LeaveGroupRequest)
    home = yield from find_home(message.group_id, mesh)
    return (
        yield from _pass_on(request, mesh, home, message.group_id, LeaveGroupResponse(), Lane.CLIENT, CALL_TIMEOUT_S)
    )


def subscription(message: JoinGroupRequest) -> Sequence[str]:
    """Topics that a consumer subscribes to; none for other kinds of members and for unreadable metadata."""
    if message.protocol_type != "consumer":
        return ()
    topics: dict[str, None] = {}
    for protocol in message.protocols:
        try:
            topics.update(dict.fromkeys(subscription_of(protocol.metadata).topics))
        except WireError:
            continue  # an assignor of the user's own may write what it likes
    return tuple(topics)


def _pass_on(
    request: Request,
    mesh: MeshView,
    home: str | None,
    group_id: str,
    failed: MemberResponse,
    lane: Lane,
    timeout_s: float,
) -> Generator[Command, Any, Answer]:
    """The coordinator's own answer, or `failed` with COORDINATOR_NOT_AVAILABLE, on which clients look for it again."""
    failed.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if home is None:
        return failed
    coordinator = Coordinator(group_id)
    verbatim = Verbatim(request.frame)
    call = Call(home, verbatim, request.version, coordinator, lane, timeout_s, raw=True, api_key=request.api_key)
    outcome = yield from ask_raw(call)
    if isinstance(outcome, Unreachable):
        yield Forget(home, coordinator)
        return failed
    answer = outcome.decode(type(failed))
    if answer.error_code in COORDINATOR_MOVED:
        yield Forget(home, coordinator)
        return answer
    if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        mesh.memory.group_homes.drop(group_id)  # another gateway may have moved the group elsewhere
    if isinstance(answer, JoinGroupResponse) and not answer.error_code and answer.leader == answer.member_id:
        mesh.memory.on_rebalance(group_id)  # once for each generation, which has one leader
    return outcome
