"""The four APIs that describe groups, one for each kind: every group as its home cluster describes it.

A share group over several clusters gets its partitions from all of them (`share_description`). Copies that hold only
offsets are not shown. A group of another kind is not found; clients that do not know the kind then ask by the next API.
If a cluster is silent and no other has the group, the client is to ask again. If another cluster has the group as
another kind, the group is not found: the silent cluster would not have it.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from services.gateway.requests.groups.group_home import NO_CLAIM, claim_of, describe_patiently, strongest
from services.gateway.requests.groups.group_kinds import (
    CLASSIC,
    CONSUMER,
    KINDS,
    SHARE,
    STREAMS,
    STREAMS_WITH_TOPOLOGY,
    D,
    Description,
    GroupKind,
    describe,
    questions,
)
from services.gateway.requests.groups.group_topic_ids import show_topic_ids
from services.gateway.requests.groups.share_description import over_clusters
from services.gateway.requests.plan import Command, MeshView, Plan, Request, Unreachable
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

NOT_FOUND_SINCE = 6
"""First version of DescribeGroups with an error for a group that does not exist, beside the state Dead, and with room
for a sentence."""
TOPOLOGIES_SINCE = 1
"""First version of StreamsGroupDescribe with fields for the topology that an application reports."""
AT_ONCE = 100
"""Groups that are asked for at the same time."""

Join = Callable[[str, Mapping[str, D | Unreachable], MeshView], D]
"""Home, and the descriptions by cluster."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeGroupsRequest)
    groups = yield from _described(CLASSIC, message.groups, message.include_authorized_operations, mesh)
    if request.version < NOT_FOUND_SINCE:
        for group in groups:
            group.error_message = None
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                group.error_code = ErrorCode.NONE
    return DescribeGroupsResponse(groups=groups)


def handle_consumer_groups(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ConsumerGroupDescribeRequest)
    groups = yield from _described(CONSUMER, message.group_ids, message.include_authorized_operations, mesh)
    for group in groups:
        for member in group.members:
            show_topic_ids(member.assignment.topic_partitions, mesh)
            show_topic_ids(member.target_assignment.topic_partitions, mesh)
    return ConsumerGroupDescribeResponse(groups=groups)


def handle_share_groups(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ShareGroupDescribeRequest)
    groups = yield from _described(SHARE, message.group_ids, message.include_authorized_operations, mesh, over_clusters)
    for group in groups:
        for member in group.members:
            show_topic_ids(member.assignment.topic_partitions, mesh)
    return ShareGroupDescribeResponse(groups=groups)


def handle_streams_groups(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(StreamsGroupDescribeRequest)
    kind = STREAMS_WITH_TOPOLOGY if message.include_topology_description else STREAMS
    groups = yield from _described(kind, message.group_ids, message.include_authorized_operations, mesh)
    if request.version < TOPOLOGIES_SINCE:
        for group in groups:
            group.topology_description, group.topology_description_status = None, 0
    return StreamsGroupDescribeResponse(groups=groups)


def _described(
    kind: GroupKind[D],
    group_ids: Sequence[str],
    authorized_operations: bool,
    mesh: MeshView,
    joined: Join[D] | None = None,
) -> Generator[Command, Any, list[D]]:
    """`joined`: makes one description of those of several clusters; None: that of the home is the whole."""
    groups: list[D] = []
    for begin in range(0, len(group_ids), AT_ONCE):
        ids = group_ids[begin : begin + AT_ONCE]
        asked = [
            question
            for group_id in dict.fromkeys(ids)
            for question in questions(kind, group_id, mesh, authorized_operations=authorized_operations)
        ]
        told: dict[str, dict[str, D | Unreachable]] = {group_id: {} for group_id in ids}
        for question, outcome in (yield from describe_patiently(asked, mesh)).items():
            told[question.group_id][question.cluster] = outcome
        other = yield from _of_another_kind(kind, [g for g in told if _is_uncertain(told[g])], mesh)
        for group_id in ids:
            if group_id in other:
                code = ErrorCode.GROUP_ID_NOT_FOUND
                groups.append(_failed(kind, group_id, code, worded(code, f"{group_id} is no {kind.name} group")))
            else:
                groups.append(_at_home(kind, group_id, told[group_id], mesh, joined))
    return groups


def _is_uncertain(told: Mapping[str, Description | Unreachable]) -> bool:
    """Whether the group may be on a cluster that has not answered."""
    home, _ = strongest(told.items())
    return home is None and any(isinstance(outcome, Unreachable) for outcome in told.values())


def _of_another_kind(
    kind: GroupKind[Any], group_ids: Iterable[str], mesh: MeshView
) -> Generator[Command, Any, set[str]]:
    """Those groups that a cluster has as another kind."""
    asked = [
        question
        for group_id in group_ids
        for other in KINDS
        if other is not kind
        for question in questions(other, group_id, mesh)
    ]
    found = yield from describe(asked, mesh)
    return {question.group_id for question, outcome in found.items() if claim_of(outcome) > NO_CLAIM}


def _at_home(
    kind: GroupKind[D],
    group_id: str,
    told: Mapping[str, D | Unreachable],
    mesh: MeshView,
    joined: Join[D] | None,
) -> D:
    """The group as its home describes it; if no cluster knows the group, the error to answer with."""
    home, _ = strongest(told.items())
    if home is not None and joined is not None:
        return joined(home, told, mesh)
    if home is not None:
        group = told[home]
        assert not isinstance(group, Unreachable), "a cluster that did not answer has no claim"
        return group
    silent = [outcome for outcome in told.values() if isinstance(outcome, Unreachable)]
    if silent or not mesh.table.clusters:
        reason = "; ".join(f"cluster {outcome.cluster}: {outcome.reason}" for outcome in silent) or "no cluster yet"
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _failed(kind, group_id, code, worded(code, reason))
    for outcome in told.values():
        if not isinstance(outcome, Unreachable) and _is_refusal(outcome):
            return outcome
    return _failed(kind, group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def _failed(kind: GroupKind[D], group_id: str, code: ErrorCode, text: str) -> D:
    group = kind.description()
    group.error_code, group.error_message, group.group_id = code, text, group_id
    group.group_state = "Dead" if code is ErrorCode.GROUP_ID_NOT_FOUND else ""
    return group


def _is_refusal(group: Description) -> bool:
    return group.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
