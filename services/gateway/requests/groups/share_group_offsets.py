"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets.

They handle the offsets from which share groups read on.

The gateway reads or changes each group on its home cluster. Requests name topics; the ids beside the names are the
mesh's.
"""

from collections.abc import Generator
from typing import Any, TypeVar

from services.gateway.requests.groups.group_home import find_home
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.groups.group_topic_ids import show_topic_ids
from services.gateway.requests.plan import (
    Call,
    Command,
    Coordinator,
    Forget,
    Lane,
    MeshView,
    Plan,
    Request,
    Unreachable,
)
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from services.gateway.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from services.gateway.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from services.gateway.wire.schema import Struct

M = TypeVar("M", bound=Struct)

NOWHERE = Unreachable("", "no cluster knows yet where the group lives", never_sent=True)


def handle_describe(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeShareGroupOffsetsRequest)
    asked = []
    for group in message.groups:
        home = yield from find_home(group.group_id, mesh)
        if home is not None:
            asked.append((group, home))
    calls = [_call(home, DescribeShareGroupOffsetsRequest([group]), group.group_id, request) for group, home in asked]
    outcomes = yield from ask_fitting(mesh, calls, DescribeShareGroupOffsetsResponse)
    told: dict[str, DescribeShareGroupOffsetsResponseGroup] = {}
    for (group, home), outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, Unreachable) or not outcome.groups:
            yield Forget(home, Coordinator(group.group_id))
            told[group.group_id] = _undescribed(group, outcome if isinstance(outcome, Unreachable) else NOWHERE)
            continue
        [found] = outcome.groups
        if found.error_code in COORDINATOR_MOVED:
            yield Forget(home, Coordinator(group.group_id))
        show_topic_ids(found.topics, mesh)
        told[group.group_id] = found
    return DescribeShareGroupOffsetsResponse(
        groups=[told.get(group.group_id) or _undescribed(group, NOWHERE) for group in message.groups]
    )


def handle_alter(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AlterShareGroupOffsetsRequest)
    outcome = yield from _at_home(message, message.group_id, AlterShareGroupOffsetsResponse, request, mesh)
    if isinstance(outcome, Unreachable):
        code, text = _failure(outcome)
        return AlterShareGroupOffsetsResponse(error_code=code, error_message=text)
    show_topic_ids(outcome.responses, mesh)
    return outcome


def handle_delete(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DeleteShareGroupOffsetsRequest)
    outcome = yield from _at_home(message, message.group_id, DeleteShareGroupOffsetsResponse, request, mesh)
    if isinstance(outcome, Unreachable):
        code, text = _failure(outcome)
        return DeleteShareGroupOffsetsResponse(error_code=code, error_message=text)
    show_topic_ids(outcome.responses, mesh)
    return outcome


def _at_home(
    message: Struct, group_id: str, cls: type[M], request: Request, mesh: MeshView
) -> Generator[Command, Any, M | Unreachable]:
    home = yield from find_home(group_id, mesh)
    if home is None:
        return NOWHERE
    [outcome] = yield from ask_fitting(mesh, [_call(home, message, group_id, request)], cls)
    if isinstance(outcome, Unreachable) or getattr(outcome, "error_code", 0) in COORDINATOR_MOVED:
        yield Forget(home, Coordinator(group_id))
    return outcome


def _call(home: str, message: Struct, group_id: str, request: Request) -> Call:
    return Call(home, message, request.version, Coordinator(group_id), Lane.CLIENT)


def _failure(outcome: Unreachable) -> tuple[ErrorCode, str]:
    code = ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code, worded(code, f"cluster {outcome.cluster}: {outcome.reason}" if outcome.cluster else outcome.reason)


def _undescribed(
    group: DescribeShareGroupOffsetsRequestGroup, outcome: Unreachable
) -> DescribeShareGroupOffsetsResponseGroup:
    code, text = _failure(outcome)
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=code, error_message=text)
