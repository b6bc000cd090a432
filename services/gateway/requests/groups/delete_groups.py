"""DeleteGroups: every cluster that knows a group deletes it, with its foreign offsets.

Theory of operation
1. Several clusters may have offsets of a group, but only one has its members. Only this cluster can refuse because the
   group is in use: copies elsewhere look empty. So the gateway asks that cluster first, and the others delete their
   copies when it has agreed.
2. The first round asks each cluster that may know of members: the group's home, and every cluster that describes no
   such group. The latter may have a group of a newer kind (KIP-848, share groups), about which DescribeGroups is
   silent. If they have none, they lose nothing.
3. Each cluster of a share group's topics keeps the group's state of these topics. If the group has members anywhere,
   only the clusters with members are asked first: the others would delete the state of a living group.
4. While a cluster is silent nothing is deleted: the members may be there. Clients try again.
5. From version 3 on a result has a field for a sentence: the gateway puts there the first sentence of a cluster about
   the error.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from services.gateway.requests.groups.group_home import (
    ALIVE,
    REAL,
    SIMPLE,
    claim_of,
    describe_everywhere,
    hindrance,
    strongest,
)
from services.gateway.requests.groups.group_kinds import (
    COORDINATOR_MOVED,
    SHARE,
    by_cluster,
    describe,
    for_clients,
    questions,
)
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
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, refusal
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from services.gateway.wire.messages.describe_groups import DescribedGroup

NOT_FOUND = Verdict(ErrorCode.GROUP_ID_NOT_FOUND)
DONE = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})


@dataclass(slots=True)
class _Deletion:
    """One group that is being deleted."""

    group_id: str
    first: list[str] = field(default_factory=list)
    """Clusters that may refuse the deletion."""
    copies: list[str] = field(default_factory=list)
    """Clusters that hold offsets of the group without its members: asked when none of `first` has refused."""
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        return any(verdict.code not in DONE for verdict in self.verdicts)

    def result(self) -> DeletableGroupResult:
        """A group with members outranks any other error; the group is not found only if no cluster knew it."""
        by_code = {verdict.code: verdict for verdict in reversed(self.verdicts)}
        troubles = [verdict for verdict in self.verdicts if verdict.code not in DONE]
        if ErrorCode.NON_EMPTY_GROUP in by_code:
            code, text = by_code[ErrorCode.NON_EMPTY_GROUP]
        elif troubles:
            code, text = troubles[0]
        else:
            code, text = by_code.get(ErrorCode.NONE) or by_code.get(ErrorCode.GROUP_ID_NOT_FOUND) or NOT_FOUND
        return DeletableGroupResult(self.group_id, code, text)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DeleteGroupsRequest)
    deletions = []
    for group_id in dict.fromkeys(message.groups_names):
        deletions.append((yield from _planned(group_id, mesh)))
        mesh.memory.group_homes.drop(group_id)
    yield from _delete([(each, each.first) for each in deletions], request.version, mesh)
    yield from _delete([(each, each.copies) for each in deletions if not each.refused], request.version, mesh)
    return DeleteGroupsResponse(results=[each.result() for each in deletions])


def _planned(group_id: str, mesh: MeshView) -> Generator[Command, Any, _Deletion]:
    """Which clusters to ask, and when; with a code from the start if none is to be asked."""
    clusters = list(mesh.table.clusters)
    if not clusters:
        return _Deletion(
            group_id, verdicts=[refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the mesh has no cluster yet")]
        )
    if len(clusters) == 1:
        return _Deletion(group_id, first=clusters)
    found = yield from describe_everywhere(group_id, mesh)
    code = hindrance(found.values())
    if code is not None:
        silent = [
            name for name, group in found.items() if isinstance(group, Unreachable) or group.error_code not in DONE
        ]
        text = f"the group may have members on a cluster that does not tell now: {', '.join(silent)}"
        return _Deletion(group_id, verdicts=[refusal(code, text)])
    in_use = [] if strongest(found.items())[0] else (yield from _shared(group_id, mesh))
    if in_use:
        return _Deletion(group_id, first=in_use, copies=[name for name in clusters if name not in in_use])
    home, _ = strongest(found.items())
    claims = {name: claim_of(group if isinstance(group, DescribedGroup) else None)[0] for name, group in found.items()}
    first = [name for name, claim in claims.items() if claim < SIMPLE or (name == home and claim >= REAL)]
    return _Deletion(group_id, first=first, copies=[name for name in clusters if name not in first])


def _shared(group_id: str, mesh: MeshView) -> Generator[Command, Any, list[str]]:
    """The clusters where a share group of this id has members, and those that do not tell."""
    found = by_cluster((yield from describe(questions(SHARE, group_id, mesh), mesh)))
    return [name for name, group in found.items() if isinstance(group, Unreachable) or claim_of(group)[0] == ALIVE]


def _delete(
    wanted: Iterable[tuple[_Deletion, list[str]]], version: int, mesh: MeshView
) -> Generator[Command, Any, None]:
    places = [(deletion, cluster) for deletion, clusters in wanted for cluster in clusters]
    calls = [
        Call(
            cluster, DeleteGroupsRequest(groups_names=[each.group_id]), version, Coordinator(each.group_id), Lane.CLIENT
        )
        for each, cluster in places
    ]
    outcomes = yield from ask_fitting(mesh, calls, DeleteGroupsResponse)
    for (each, cluster), outcome in zip(places, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            code = ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else ErrorCode.COORDINATOR_NOT_AVAILABLE
            verdict = refusal(code, f"cluster {cluster}: {outcome.reason}")
        else:
            told = {result.group_id: Verdict(result.error_code, result.error_message) for result in outcome.results}
            verdict = told.get(each.group_id, LEFT_OUT)
        if verdict.code in COORDINATOR_MOVED:
            yield Forget(cluster, Coordinator(each.group_id))
        each.verdicts.append(Verdict(for_clients(verdict.code), verdict.text))
