"""Heartbeats of the newer kinds of groups: the part that all of them share once their home is known."""

from collections.abc import Generator
from typing import Any, TypeVar

from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.plan import Call, Command, Coordinator, Forget, Lane, MeshView, Unreachable
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

HeartbeatRequest = ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest | StreamsGroupHeartbeatRequest
R = TypeVar("R", ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse, StreamsGroupHeartbeatResponse)


def beat(
    message: HeartbeatRequest, home: str, version: int, answer: type[R], mesh: MeshView
) -> Generator[Command, Any, R]:
    """The answer of the coordinator at home, or a refusal with the reason why that coordinator does not answer."""
    call = Call(home, message, version, Coordinator(message.group_id), Lane.CLIENT)
    [outcome] = yield from ask_fitting(mesh, [call], answer)
    return (yield from heard(message, outcome, home, answer, mesh))


def heard(
    message: HeartbeatRequest, outcome: R | Unreachable, home: str, answer: type[R], mesh: MeshView
) -> Generator[Command, Any, R]:
    """The answer for the client, after the gateway has learnt from the outcome of a heartbeat at home."""
    coordinator = Coordinator(message.group_id)
    if isinstance(outcome, Unreachable):
        yield Forget(home, coordinator)
        return unreached(message, answer, outcome)
    if outcome.error_code in COORDINATOR_MOVED:
        yield Forget(home, coordinator)
    if outcome.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        mesh.memory.group_homes.drop(message.group_id)  # another gateway may have moved the group elsewhere
    if any(getattr(outcome, given, None) is not None for given in ("assignment", "active_tasks")):
        mesh.memory.on_rebalance(message.group_id)
    return outcome


def homeless(message: HeartbeatRequest, answer: type[R]) -> R:
    """The answer for a group whose home no cluster can name yet."""
    text = "no cluster knows yet where the group lives"
    return refused(message, answer, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)


def unreached(message: HeartbeatRequest, answer: type[R], outcome: Unreachable) -> R:
    """The answer for a group whose home does not answer."""
    code = ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else ErrorCode.COORDINATOR_NOT_AVAILABLE
    text = f"group {message.group_id} lives on cluster {outcome.cluster}: {outcome.reason}"
    return refused(message, answer, code, text)


def refused(message: HeartbeatRequest, answer: type[R], code: int, text: str) -> R:
    return answer(
        error_code=code,
        error_message=worded(code, text),
        member_id=message.member_id,
        member_epoch=message.member_epoch,
    )
