"""A share group over several clusters in one description (KIP-932), out of those of its clusters."""

from collections.abc import Mapping
from dataclasses import replace

from services.gateway.requests.groups.group_home import ALIVE, claim_of
from services.gateway.requests.plan import MeshView, Unreachable
from services.gateway.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions


def over_clusters(home: str, told: Mapping[str, DescribedGroup | Unreachable], mesh: MeshView) -> DescribedGroup:
    """The group as its home describes it, with the partitions that the other clusters have assigned to its members.

    Each cluster tells about its own topics. A group has members as long as one of its clusters has them.
    """
    known = {name: group for name, group in told.items() if not isinstance(group, Unreachable)}
    group = known[home]
    members: dict[str, Member] = {}
    for cluster in (home, *(name for name in known if name != home)):
        if claim_of(known[cluster])[0] != ALIVE:
            continue
        for member in known[cluster].members:
            given = _own_topics(member, cluster, mesh)
            earlier = members.get(member.member_id)
            if earlier is not None:
                given = [*earlier.assignment.topic_partitions, *given]
            members[member.member_id] = replace(earlier or member, assignment=Assignment(given))
    alive = next((each.group_state for each in known.values() if claim_of(each)[0] == ALIVE), group.group_state)
    state = group.group_state if claim_of(group)[0] == ALIVE else alive
    return replace(group, group_state=state, members=list(members.values()))


def _own_topics(member: Member, cluster: str, mesh: MeshView) -> list[TopicPartitions]:
    return [topic for topic in member.assignment.topic_partitions if mesh.table.cluster_of(topic.topic_name) == cluster]
