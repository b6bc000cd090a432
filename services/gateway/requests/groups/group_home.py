"""Which cluster's coordinator a group uses: every gateway finds the same answer, without shared state.

The first of these that applies:
1. the cluster that a rule about the group names;
2. the cluster where the group has members, of whatever kind the group is;
3. the cluster where the group has been a real group: empty now, but of a protocol type. Offsets that the mesh committed
   for a group on a foreign cluster leave a *simple* group there, without a protocol type: such a cluster is no home;
4. the only owner of all topics that the asking member subscribes to;
5. the home cluster of the mesh.
Members of the newer kinds (KIP-848, share, streams) get their partitions from the coordinator, which knows the topics
of its own cluster alone. For them 4 comes before 3: an empty group goes to the cluster of its topics. The gateway
asks the brokers about 2 and 3. The gateway remembers a group with members for a while, and looks up any other group
each time. So two gateways that have begun the same group on two clusters notice within seconds. A cluster that does
not answer is skipped, and members of a group that is still on its last home wait `SOON_S` for it. A cluster that has
failed over is a last home no more: its groups go on at the cluster of their topics. For a cluster that is
about to know (its coordinator moves or loads) the client has to wait: members sent elsewhere meanwhile would be a
second group.

A cluster whose first group this is creates its topic of offsets at the first question, and is about to know for less
than a second. Members ask again by themselves. For tools the gateway waits (`describe_patiently`): they would tell
their users what a broker never answers.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from services.gateway.requests.groups.group_kinds import (
    CLASSIC,
    KINDS,
    NOT_YET_KNOWN,
    D,
    Description,
    Question,
    by_cluster,
    describe,
    describe_within,
    for_clients,
    is_about_to_know,
    questions,
)
from services.gateway.requests.plan import Command, Gather, MeshView, Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_groups import DescribedGroup
from services.gateway.wire.messages.share_group_describe import DescribedGroup as Shared

NO_MEMBERS = frozenset({"", "Dead", "Empty"})
PATIENCE_S = 3.0
"""How long tools wait for coordinators: a topic of offsets is created and loaded in less than a second."""
SOON_S = 1.0
"""How long members of a group that is still on its last home wait for the other clusters. A cluster that stands still
must not hold up the heartbeats of groups on others."""
PAUSE_S = 0.1
"""Between two questions to a coordinator that is about to know."""

Claim = tuple[int, int]
"""How strongly a cluster is a group's home, and the size of its copy; greater is stronger."""

NO_CLAIM: Claim = (0, 0)
SIMPLE, REAL, ALIVE = 1, 2, 3


def claim_of(group: Description | Unreachable | None) -> Claim:
    """The strength of a cluster's claim to be a group's home, by its description of the group."""
    if group is None or isinstance(group, Unreachable) or group.error_code or group.group_state in ("", "Dead"):
        return NO_CLAIM
    if group.group_state not in NO_MEMBERS:
        return ALIVE, _size(group)
    only_offsets = isinstance(group, DescribedGroup) and not group.protocol_type
    return (SIMPLE if only_offsets else REAL), 0


def _size(group: Description) -> int:
    """The number of members, and of the topics that members of share groups name.

    All members of a share group over several clusters are at home with all their topics; other clusters have parts.
    """
    named = sum(len(member.subscribed_topic_names) for member in group.members) if isinstance(group, Shared) else 0
    return len(group.members) + named


Descriptions = dict[str, DescribedGroup | Unreachable]


def describe_everywhere(
    group_id: str, mesh: MeshView, *, authorized_operations: bool = False
) -> Generator[Command, Any, Descriptions]:
    """The classic group as each cluster of the table describes it, by name of the cluster, in the table's order."""
    asked = questions(CLASSIC, group_id, mesh, authorized_operations=authorized_operations)
    return by_cluster((yield from describe_patiently(asked, mesh)))


def describe_patiently(
    asked: Iterable[Question[D]], mesh: MeshView
) -> Generator[Command, Any, dict[Question[D], D | Unreachable]]:
    """As `describe`, but waits for coordinators that are about to know, until the request is `PATIENCE_S` old.

    There is no wait for a group that has members on another cluster.
    """
    found = yield from describe(asked, mesh)
    while (awaited := _awaited(found, mesh)) and mesh.clock() < mesh.now + PATIENCE_S:
        yield Gather((), lambda _: False, PAUSE_S, waits_for="coordinator")
        found |= yield from describe(awaited, mesh)
    return found


def _awaited(found: Mapping[Question[D], D | Unreachable], mesh: MeshView) -> list[Question[D]]:
    alive = {question.group_id for question, outcome in found.items() if claim_of(outcome)[0] == ALIVE}
    return [
        question
        for question, outcome in found.items()
        if question.group_id not in alive and is_about_to_know(outcome, question.cluster, mesh)
    ]


def hindrance(found: Iterable[Description | Unreachable]) -> int | None:
    """The client's error code if a cluster is silent about the group, so that nobody can name its home now."""
    for group in found:
        if isinstance(group, Unreachable):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return for_clients(group.error_code)
    return None


def strongest(found: Iterable[tuple[str, Description | Unreachable]]) -> tuple[str | None, Claim]:
    """The cluster with the strongest claim on a group, the first of equals; None when no cluster knows the group."""
    best: str | None = None
    best_claim = NO_CLAIM
    for name, group in found:
        claim = claim_of(group)
        if claim > best_claim:
            best, best_claim = name, claim
    return best, best_claim


def find_home(
    group_id: str,
    mesh: MeshView,
    subscription: Sequence[str] = (),
    *,
    near_topics: bool = False,
    patiently: bool = False,
) -> Generator[Command, Any, str | None]:
    """Name of the group's home cluster.

    None in a mesh without clusters, and while a coordinator does not know the group yet.

    `near_topics`: the group is of a kind that can read only topics of its coordinator's cluster.
    `patiently`: the gateway waits for coordinators, because the client would not ask again.
    """
    clusters = mesh.table.clusters
    rule = mesh.table.group_rule(group_id)
    if rule is not None:
        return rule.target_cluster if rule.target_cluster in clusters else None
    if len(clusters) <= 1:
        return next(iter(clusters), None)
    near = sole_owner(subscription, mesh)
    homes = mesh.memory.group_homes
    last, remembered = homes.get_also_old(group_id), homes.get(group_id, mesh.now)
    if last is not None and mesh.memory.seams.is_given_up(last, mesh.now):
        last = remembered = None
    if remembered in clusters and not (near_topics and near not in (None, remembered)):
        return remembered
    homes.drop(group_id)
    asked = [question.internal for kind in KINDS for question in questions(kind, group_id, mesh)]
    found: dict[Question[Any], Any] = {}
    if last in clusters and not (near_topics and near not in (None, last)):
        found = yield from describe_within(SOON_S, asked, mesh)
    if not any(question.cluster == last and claim_of(outcome)[0] == ALIVE for question, outcome in found.items()):
        look = describe_patiently if patiently else describe
        found = yield from look(asked, mesh)
    home, (claim, _) = strongest((question.cluster, outcome) for question, outcome in found.items())
    if claim == ALIVE and home is not None:
        homes.put(group_id, home, mesh.now)
        return home
    if any(not isinstance(outcome, Unreachable) and outcome.error_code in NOT_YET_KNOWN for outcome in found.values()):
        return None
    if claim == REAL and not (near_topics and near):
        return home
    return near or _mesh_home(mesh)


def lives(group_id: str, mesh: MeshView) -> bool:
    """Whether the group has its home for good: by a rule, or by its members, as far as `find_home` has just seen."""
    ruled = mesh.table.group_rule(group_id) is not None
    return ruled or mesh.memory.group_homes.get(group_id, mesh.now) is not None


def owners(topics: Iterable[str], mesh: MeshView) -> Mapping[str, list[str]]:
    """Topics by the cluster that owns them; topics without a rule are left out."""
    found: dict[str, list[str]] = {}
    for topic in topics:
        owner = mesh.table.cluster_of(topic)
        if owner is not None:
            found.setdefault(owner, []).append(topic)
    return found


def sole_owner(subscription: Sequence[str], mesh: MeshView) -> str | None:
    found = owners(subscription, mesh)
    return next(iter(found)) if len(found) == 1 else None


def may_have_shadows(group_id: str, mesh: MeshView) -> bool:
    """Whether the group's home may get shadows of foreign topics. A rule about the group decides; without one: yes."""
    rule = mesh.table.group_rule(group_id)
    return rule is None or rule.shadow_topics


def keeps_all_offsets(group_id: str, mesh: MeshView) -> str | None:
    """The group's home, if a rule has it keep the group's offsets of all topics, also of foreign ones."""
    rule = mesh.table.group_rule(group_id)
    return rule.target_cluster if rule is not None and rule.shadow_topics else None


def offsets_place(group_id: str, topic: str, mesh: MeshView) -> str | None:
    """The cluster that keeps a group's offsets of a topic; None for a topic that no rule matches."""
    owner = mesh.table.cluster_of(topic)
    return owner and (keeps_all_offsets(group_id, mesh) or owner)


def _mesh_home(mesh: MeshView) -> str | None:
    home = mesh.table.home
    return None if home is None else home.name
