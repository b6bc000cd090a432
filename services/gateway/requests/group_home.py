"""Which cluster's coordinator a group uses: the same answer on every gateway, without shared state.

In this order, first hit:
1. the cluster where the group has members;
2. the cluster where it has been a real group: empty now, but of a protocol type. Offsets that the mesh committed for a
   group on a foreign cluster leave a *simple* group there, without a protocol type: that is no home;
3. the only owner of all topics that the member who asks subscribes to;
4. the home cluster of the mesh.
1 and 2 are looked up on the brokers and remembered for a while. A cluster that does not answer is passed over, and the
answer is then only remembered if members were found: another look may show something else. A cluster that is about to
know (its coordinator moves or loads) is waited for: members sent elsewhere meanwhile would be a second group.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from services.gateway.requests.plan import Call, Command, Coordinator, Forget, MeshView, Unreachable, ask_all
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

LOOKUP_TIMEOUT_S = 3.0
DESCRIBE_VERSION = 4
"""DescribeGroups version of the look-up: all brokers since 2.4 speak it; older ones are asked in theirs."""

COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
NOT_YET_KNOWN = COORDINATOR_MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
NO_MEMBERS = frozenset({"", "Dead", "Empty"})

Claim = tuple[int, int]
"""How strongly a cluster is a group's home, and the size of its copy; greater is stronger."""

NO_CLAIM: Claim = (0, 0)
SIMPLE, REAL, ALIVE = 1, 2, 3


def claim_of(group: DescribedGroup | None) -> Claim:
    """What a cluster's description of a group says about where the group lives."""
    if group is None or group.error_code or group.group_state in ("", "Dead"):
        return NO_CLAIM
    if group.group_state not in NO_MEMBERS:
        return ALIVE, len(group.members)
    return (REAL if group.protocol_type else SIMPLE), 0


Descriptions = dict[str, DescribedGroup | Unreachable]


def describe_everywhere(
    group_id: str, mesh: MeshView, *, authorized_operations: bool = False
) -> Generator[Command, Any, Descriptions]:
    """The group as each cluster of the table describes it, by name of the cluster, in their order."""
    found = yield from _describe(group_id, list(mesh.table.clusters), mesh, authorized_operations)
    moved = [name for name, group in found.items() if _may_have_moved(group, name, mesh)]
    if moved:
        for name in moved:
            yield Forget(name, Coordinator(group_id))
        found |= yield from _describe(group_id, moved, mesh, authorized_operations)
    return found


def _may_have_moved(group: DescribedGroup | Unreachable, cluster: str, mesh: MeshView) -> bool:
    """Whether another broker of the cluster may know the group: the one that was asked does not, or is gone."""
    if isinstance(group, Unreachable):
        return group.never_sent and mesh.clusters[cluster].available
    return group.error_code in COORDINATOR_MOVED


def _describe(
    group_id: str, names: Sequence[str], mesh: MeshView, authorized_operations: bool
) -> Generator[Command, Any, Descriptions]:
    calls = [
        Call(
            name,
            DescribeGroupsRequest(groups=[group_id], include_authorized_operations=authorized_operations),
            highest_version(mesh, name, ApiKey.DESCRIBE_GROUPS, DESCRIBE_VERSION),
            Coordinator(group_id),
            timeout_s=LOOKUP_TIMEOUT_S,
        )
        for name in names
    ]
    outcomes = yield from ask_all(calls, DescribeGroupsResponse)
    found: Descriptions = {}
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            found[name] = outcome
        else:
            found[name] = outcome.groups[0] if outcome.groups else Unreachable(name, "an answer without the group")
    return found


def strongest(found: Iterable[tuple[str, DescribedGroup | Unreachable]]) -> tuple[str | None, Claim]:
    """The cluster with the strongest claim on a group, the first of equals; None when no cluster knows the group."""
    best: str | None = None
    best_claim = NO_CLAIM
    for name, group in found:
        claim = claim_of(None if isinstance(group, Unreachable) else group)
        if claim > best_claim:
            best, best_claim = name, claim
    return best, best_claim


def find_home(group_id: str, mesh: MeshView, subscription: Sequence[str] = ()) -> Generator[Command, Any, str | None]:
    """Name of the group's home cluster; None in a mesh without clusters, and while a coordinator can't tell yet."""
    clusters = mesh.table.clusters
    if len(clusters) <= 1:
        return next(iter(clusters), None)
    remembered = mesh.memory.group_homes.get(group_id, mesh.now)
    if remembered in clusters:
        return remembered
    found = yield from describe_everywhere(group_id, mesh)
    home, claim = strongest(found.items())
    answered = [group for group in found.values() if isinstance(group, DescribedGroup)]
    if claim[0] < ALIVE and any(group.error_code in NOT_YET_KNOWN for group in answered):
        return None
    if home is None or claim[0] == SIMPLE:
        home = _sole_owner(subscription, mesh) or _mesh_home(mesh)
    if home is not None and (claim[0] == ALIVE or (subscription and len(answered) == len(found))):
        mesh.memory.group_homes.put(group_id, home, mesh.now)
    return home


def _sole_owner(subscription: Sequence[str], mesh: MeshView) -> str | None:
    owners = {owner for topic in subscription if (owner := mesh.table.cluster_of(topic)) is not None}
    return owners.pop() if len(owners) == 1 else None


def _mesh_home(mesh: MeshView) -> str | None:
    home = mesh.table.home
    return None if home is None else home.name
