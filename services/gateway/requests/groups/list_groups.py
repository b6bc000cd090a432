"""ListGroups: the groups of every broker of every cluster, each once.

A broker lists the groups that it coordinates. Offsets that the mesh committed for a group on a foreign cluster show
there as an empty group without a protocol type. If the real group is known, that copy is left out. So the gateway asks
brokers for all groups, and filters by the client's states and types itself: a copy is empty, whatever its group is.
"""

from services.gateway.requests.groups.group_home import Claim
from services.gateway.requests.plan import Broker, Call, MeshView, Plan, Request, Unreachable, refresh
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC_TYPE = "classic"
"""The type of groups on clusters that know no other type, and so report none."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ListGroupsRequest)
    calls = []
    for name in mesh.table.clusters:
        if not mesh.clusters[name].brokers:
            yield from refresh(name, ())
        calls += [
            Call(name, ListGroupsRequest(), request.version, Broker(broker)) for broker in mesh.clusters[name].brokers
        ]
    outcomes = yield from ask_fitting(mesh, calls, ListGroupsResponse)
    answers = [outcome for outcome in outcomes if not isinstance(outcome, Unreachable)]
    if mesh.table.clusters and not answers:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    groups: dict[str, ListedGroup] = {}
    for answer in answers:
        for group in answer.groups:
            group.group_type = group.group_type or CLASSIC_TYPE
            known = groups.get(group.group_id)
            if known is None or _claim(group) > _claim(known):
                groups[group.group_id] = group
    # one broker that still loads its groups makes a client ask again, as on one cluster
    failed = next((answer.error_code for answer in answers if answer.error_code), ErrorCode.NONE)
    wanted = [group for group in groups.values() if _is_wanted(group, message)]
    return ListGroupsResponse(error_code=failed, groups=wanted)


def _claim(group: ListedGroup) -> Claim:
    """The same order as in `group_home`: members first, then a protocol type, make the real group."""
    return int(group.group_state not in ("", "Empty", "Dead")), int(bool(group.protocol_type))


def _is_wanted(group: ListedGroup, message: ListGroupsRequest) -> bool:
    states = {state.lower() for state in message.states_filter}
    types = {group_type.lower() for group_type in message.types_filter}
    return (not states or group.group_state.lower() in states) and (not types or group.group_type.lower() in types)
