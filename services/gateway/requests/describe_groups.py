"""DescribeGroups: each group as its home cluster describes it; copies that only hold offsets stay behind it."""

from services.gateway.requests.group_home import describe_everywhere, strongest
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6
"""First version that tells a group that does not exist by GROUP_ID_NOT_FOUND rather than by the state Dead."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeGroupsRequest)
    described = []
    for group_id in message.groups:
        found = yield from describe_everywhere(
            group_id, mesh, authorized_operations=message.include_authorized_operations
        )
        home, _ = strongest(found.items())
        group = found[home] if home is not None else _nowhere(group_id, found, request.version)
        assert isinstance(group, DescribedGroup), "a cluster that did not answer has no claim"
        described.append(group)
    return DescribeGroupsResponse(groups=described)


def _nowhere(group_id: str, found: dict[str, DescribedGroup | Unreachable], version: int) -> DescribedGroup:
    """No cluster knows the group: said only if all were asked."""
    missing = [outcome for outcome in found.values() if isinstance(outcome, Unreachable)]
    if missing or not found:
        return DescribedGroup(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, group_id=group_id)
    refused = next((g for g in found.values() if isinstance(g, DescribedGroup) and _is_refusal(g)), None)
    if refused is not None:
        return refused
    if version >= NOT_FOUND_SINCE:
        text = f"Group {group_id} not found."
        code = ErrorCode.GROUP_ID_NOT_FOUND
        return DescribedGroup(error_code=code, error_message=text, group_id=group_id, group_state="Dead")
    return DescribedGroup(group_id=group_id, group_state="Dead")


def _is_refusal(group: DescribedGroup) -> bool:
    return group.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
