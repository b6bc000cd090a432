"""ListGroups: the groups of every broker of every cluster, each once.

A broker lists the groups that it coordinates. Offsets that the mesh committed for a group on a foreign cluster show
there as an empty group without a protocol type; where the real group is known, that copy is left out.
"""

from services.gateway.requests.plan import Broker, Call, MeshView, Plan, Request, Unreachable, ask_all, refresh
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ListGroupsRequest)
    calls = []
    for name in mesh.table.clusters:
        if not mesh.clusters[name].brokers:
            yield from refresh(name, ())
        calls += [Call(name, message, request.version, Broker(broker)) for broker in mesh.clusters[name].brokers]
    outcomes = yield from ask_all(calls, ListGroupsResponse)
    answers = [outcome for outcome in outcomes if not isinstance(outcome, Unreachable)]
    if mesh.table.clusters and not answers:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    groups: dict[str, ListedGroup] = {}
    for answer in answers:
        for group in answer.groups:
            known = groups.get(group.group_id)
            if known is None or (group.protocol_type and not known.protocol_type):
                groups[group.group_id] = group
    # one broker that still loads its groups makes a client ask again, as on one cluster
    failed = next((answer.error_code for answer in answers if answer.error_code), ErrorCode.NONE)
    return ListGroupsResponse(error_code=failed, groups=list(groups.values()))
