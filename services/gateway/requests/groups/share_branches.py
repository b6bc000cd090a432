"""The parts of a share group's member on several clusters (KIP-932): a home, and a branch on each other cluster.

Theory of operation
1. The state of a share group (what is delivered, what is accepted) is kept by the cluster of the records, for groups
   that have members there. So a member of a group over several clusters is a member on each of them, under the same
   ids. The group's home decides about the epoch that the client sees, and fences the client.
2. Heartbeats to home name all topics of the subscription, those to a branch only its own. So home is the memory of a
   subscription for a gateway that does not know the member: no gateway shares state with another.
3. Heartbeats name the topics each time, and those to branches have epoch 0. A coordinator takes such a heartbeat of a
   member that it knows as any other, and answers with the whole assignment. So each answer is the present state, and a
   lost answer, another gateway or a branch that has forgotten the member needs no care.
4. Members read a topic on its owner alone: partitions that another cluster assigns of it are left out.
5. Clusters may contradict each other, for example after one was away. Then the client gets
   UNKNOWN_MEMBER_ID: it joins again, and names its topics.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from services.gateway.requests.groups.group_home import owners
from services.gateway.requests.groups.group_kinds import SHARE, by_cluster, describe, questions
from services.gateway.requests.groups.group_topic_ids import names_at
from services.gateway.requests.groups.share_members import Assigned, ShareMember
from services.gateway.requests.groups.share_opening import Refused
from services.gateway.requests.groups.share_sessions import Member
from services.gateway.requests.plan import Command, MeshView, Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.share_group_describe import DescribedGroup
from services.gateway.wire.messages.share_group_describe import Member as DescribedMember
from services.gateway.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


def branches_of(topics: Iterable[str], home: str, mesh: MeshView) -> dict[str, list[str]]:
    """The topics of each branch, by cluster."""
    return {cluster: found for cluster, found in owners(topics, mesh).items() if cluster != home}


def names_at_home(topics: Iterable[str], home: str, mesh: MeshView) -> list[str]:
    """The subscription for home: its own topics by its own names, foreign topics by the client's."""
    routes = ((topic, mesh.table.route(topic)) for topic in topics)
    return [topic if route is None or route.cluster != home else route.upstream_topic for topic, route in routes]


def obstacle(group_id: str, topics: Mapping[str, Sequence[str]], home: str, mesh: MeshView) -> Refused | None:
    """Why the group can't read topics of these branches, if it can't."""
    for cluster, names in topics.items():
        versions = mesh.clusters[cluster].versions
        if versions and ApiKey.SHARE_GROUP_HEARTBEAT not in versions:
            text = f"group {group_id} subscribes to topics of cluster {cluster} ({', '.join(sorted(names))}), which"
            return Refused(ErrorCode.INVALID_REQUEST, f"{text} has no share groups")
    foreign = [topic for names in topics.values() for topic in names]
    taken = sorted(topic for topic in foreign if mesh.table.is_known_to_others(home, topic))
    if taken:
        text = f"group {group_id} lives on cluster {home}, where other clients have topics that are called as topics"
        return Refused(ErrorCode.INVALID_REQUEST, f"{text} of other clusters that it reads: {', '.join(taken)}")
    return None


def remembered(member: Member, home: str, mesh: MeshView) -> Generator[Command, Any, ShareMember | Refused]:
    """The member as the clusters know it."""
    group_id, member_id = member
    asked = [question.internal for question in questions(SHARE, group_id, mesh)]
    found = by_cluster((yield from describe(asked, mesh)))
    at_home = found.get(home)
    if at_home is None or isinstance(at_home, Unreachable) or at_home.error_code not in _WITHOUT_FAULT:
        text = f"group {group_id} lives on cluster {home}, which does not tell of its members now: {_why(at_home)}"
        return Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    entries = {
        cluster: entry
        for cluster, group in found.items()
        if not isinstance(group, Unreachable)
        for entry in group.members
        if entry.member_id == member_id
    }
    mine = entries.get(home)
    if mine is None:
        return Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"cluster {home} does not know member {member_id}")
    topics = _by_clients_names(mine.subscribed_topic_names, home, mesh)
    lacking = {
        topic
        for cluster, entry in entries.items()
        for topic in _by_clients_names(entry.subscribed_topic_names, cluster, mesh)
        if topic not in topics
    }
    lacking.update(topic for topic in topics if mesh.table.route(topic) is None)
    if lacking:
        text = f"the clusters do not agree about these topics of member {member_id}: {', '.join(sorted(lacking))}"
        return Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    parts = {cluster: _assigned_to(entry, cluster, mesh) for cluster, entry in entries.items()}
    return ShareMember(mesh.session.number, tuple(topics), parts)


_WITHOUT_FAULT = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})


def _why(group: DescribedGroup | Unreachable | None) -> str:
    if group is None:
        return "it has no share groups"
    return group.reason if isinstance(group, Unreachable) else error_name(group.error_code)


def _by_clients_names(names: Iterable[str], cluster: str, mesh: MeshView) -> dict[str, None]:
    return dict.fromkeys(mesh.table.virtual_topic(cluster, name) or name for name in names)


def _assigned_to(entry: DescribedMember, cluster: str, mesh: MeshView) -> Assigned:
    named = (
        (mesh.table.virtual_topic(cluster, topic.topic_name), topic.partitions)
        for topic in entry.assignment.topic_partitions
    )
    return {name: partitions for name, partitions in named if name is not None}


def assigned(
    answer: ShareGroupHeartbeatResponse, cluster: str, topics: Iterable[str], mesh: MeshView
) -> Generator[Command, Any, Assigned | None]:
    """The partitions of these topics that a cluster has assigned; None if the cluster does not tell now."""
    if answer.assignment is None:
        return None
    given = answer.assignment.topic_partitions
    names = yield from names_at(cluster, [topic.topic_id for topic in given], mesh)
    if isinstance(names, Unreachable):
        return None
    wanted = set(topics)
    named = ((names.get(topic.topic_id), topic.partitions) for topic in given)
    return {name: partitions for name, partitions in named if name in wanted}


def merged(parts: Iterable[Assigned], mesh: MeshView) -> Assignment:
    """One assignment for the client, by the mesh's topic ids."""
    return Assignment(
        [
            TopicPartitions(mesh_topic_id(mesh.mesh_id, topic), list(partitions))
            for part in parts
            for topic, partitions in part.items()
            if partitions
        ]
    )
