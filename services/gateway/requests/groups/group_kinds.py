"""The kinds of groups that a coordinator keeps, and how clusters are asked about a group.

All kinds share one space of names on a cluster. Each kind has a describing API of its own, which knows nothing of
groups of the other kinds. A cluster that describes no such group may still have a group of another kind by that name.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast

from services.gateway.requests.plan import Call, Command, Coordinator, Forget, Gather, MeshView, Unreachable, ask_all
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
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
    consumer_group_describe,
    describe_groups,
    share_group_describe,
    streams_group_describe,
)
from services.gateway.wire.schema import Struct

LOOKUP_TIMEOUT_S = 3.0

COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
NOT_YET_KNOWN = COORDINATOR_MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def for_clients(code: int) -> int:
    """The code for clients.

    Clients find the gateway as coordinator of every group. If a cluster's coordinator is absent or loading, the code
    says that it will be there soon.
    """
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in NOT_YET_KNOWN else code


class Description(Protocol):
    """The fields that the descriptions of all kinds have in common."""

    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    members: list[Any]


D = TypeVar("D", bound=Description)


class _Descriptions(Protocol):
    groups: list[Any]


@dataclass(frozen=True, slots=True)
class GroupKind(Generic[D]):
    """One of the four kinds of groups."""

    name: str
    api_key: ApiKey
    version: int
    """The version in which the gateway asks; older clusters are asked in theirs."""
    question: Callable[[list[str], bool], Struct]
    """Makes the question from group ids, and from whether the answer shall list the client's authorized operations."""
    answer: type[Struct]
    description: type[D]


CLASSIC = GroupKind(
    "classic",
    ApiKey.DESCRIBE_GROUPS,
    4,
    lambda ids, operations: DescribeGroupsRequest(groups=ids, include_authorized_operations=operations),
    DescribeGroupsResponse,
    describe_groups.DescribedGroup,
)
CONSUMER = GroupKind(
    "consumer",
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    1,
    lambda ids, operations: ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=operations),
    ConsumerGroupDescribeResponse,
    consumer_group_describe.DescribedGroup,
)
SHARE = GroupKind(
    "share",
    ApiKey.SHARE_GROUP_DESCRIBE,
    1,
    lambda ids, operations: ShareGroupDescribeRequest(group_ids=ids, include_authorized_operations=operations),
    ShareGroupDescribeResponse,
    share_group_describe.DescribedGroup,
)
STREAMS = GroupKind(
    "streams",
    ApiKey.STREAMS_GROUP_DESCRIBE,
    1,
    lambda ids, operations: StreamsGroupDescribeRequest(group_ids=ids, include_authorized_operations=operations),
    StreamsGroupDescribeResponse,
    streams_group_describe.DescribedGroup,
)
STREAMS_WITH_TOPOLOGY = replace(
    STREAMS,
    version=1,
    question=lambda ids, operations: StreamsGroupDescribeRequest(
        group_ids=ids, include_authorized_operations=operations, include_topology_description=True
    ),
)
"""Streams groups with the topology that their application has reported (KIP-1331)."""
KINDS: Sequence[GroupKind[Any]] = (CLASSIC, CONSUMER, SHARE, STREAMS)


@dataclass(frozen=True, slots=True)
class Question(Generic[D]):
    """A question about one group, to one cluster."""

    kind: GroupKind[D]
    cluster: str
    group_id: str
    authorized_operations: bool = False
    own_names: bool = False
    """The answer shall have the cluster's own names for topics."""
    by_mesh: bool = False
    """See `Call`."""

    @property
    def internal(self) -> "Question[D]":
        """The same for the gateway itself: by the cluster's own names, whatever the client may see there."""
        return replace(self, own_names=True, by_mesh=True)

    def call(self, mesh: MeshView) -> Call:
        version = highest_version(mesh, self.cluster, self.kind.api_key, self.kind.version)
        kind = STREAMS if self.kind is STREAMS_WITH_TOPOLOGY and version < self.kind.version else self.kind
        message = kind.question([self.group_id], self.authorized_operations)
        target = Coordinator(self.group_id)
        return Call(
            self.cluster,
            message,
            version,
            target,
            timeout_s=LOOKUP_TIMEOUT_S,
            by_mesh=self.by_mesh,
            own_names=self.own_names,
        )


def questions(
    kind: GroupKind[D], group_id: str, mesh: MeshView, *, authorized_operations: bool = False
) -> list[Question[D]]:
    """One question for each cluster that can have groups of this kind, in the order of the table."""
    return [
        Question(kind, name, group_id, authorized_operations)
        for name in mesh.table.clusters
        if kind.api_key in mesh.clusters[name].versions or kind is CLASSIC
    ]


def describe(
    asked: Iterable[Question[D]], mesh: MeshView
) -> Generator[Command, Any, dict[Question[D], D | Unreachable]]:
    """All answers; the questions are asked at the same time.

    If a coordinator has moved, the gateway looks it up again and asks once more.
    """
    found = yield from _describe(list(asked), mesh)
    moved = [question for question, outcome in found.items() if _may_have_moved(outcome, question.cluster, mesh)]
    if moved:
        for question in moved:
            yield Forget(question.cluster, Coordinator(question.group_id))
        found |= yield from _describe(moved, mesh)
    return found


def _describe(
    asked: Sequence[Question[D]], mesh: MeshView
) -> Generator[Command, Any, dict[Question[D], D | Unreachable]]:
    outcomes = yield from ask_all([question.call(mesh) for question in asked], Struct)
    return {question: _read(question, outcome) for question, outcome in zip(asked, outcomes, strict=True)}


def describe_within(
    wait_s: float, asked: Sequence[Question[D]], mesh: MeshView
) -> Generator[Command, Any, dict[Question[D], D | Unreachable]]:
    """The answers that come within this time; there is none of a coordinator that has moved."""
    outcomes = yield Gather(tuple(question.call(mesh) for question in asked), all, wait_s)
    return {question: _read(question, outcome) for question, outcome in zip(asked, outcomes, strict=True)}


def _read(question: Question[D], outcome: object) -> D | Unreachable:
    if isinstance(outcome, Unreachable):
        return outcome
    groups = cast(_Descriptions, outcome).groups if outcome is not None else []
    return groups[0] if groups else Unreachable(question.cluster, "no answer about the group")


def is_about_to_know(outcome: Description | Unreachable, cluster: str, mesh: MeshView) -> bool:
    """Whether a coordinator of the cluster will know the group soon: the coordinator begins, moves or loads."""
    loads = not isinstance(outcome, Unreachable) and outcome.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return loads or _may_have_moved(outcome, cluster, mesh)


def _may_have_moved(outcome: Description | Unreachable, cluster: str, mesh: MeshView) -> bool:
    """Whether another broker of the cluster may know the group: the broker that was asked does not, or is gone."""
    if isinstance(outcome, Unreachable):
        return outcome.never_sent and not outcome.unsupported and mesh.clusters[cluster].available
    return outcome.error_code in COORDINATOR_MOVED


def by_cluster(found: Mapping[Question[D], D | Unreachable]) -> dict[str, D | Unreachable]:
    """Answers about one group of one kind, by name of the cluster."""
    return {question.cluster: outcome for question, outcome in found.items()}
