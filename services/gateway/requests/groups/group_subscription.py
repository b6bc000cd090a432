"""The subscription of a member of a newer kind of group, and whether the group's home can serve it.

The coordinator of such a group assigns the topics of its own cluster. The coordinator says nothing about topics that
its cluster does not have, and their readers would wait for ever. So before it asks the coordinator, the gateway looks
for topics that the home lacks. A topic that has moved away leaves its partitions on its old cluster. If this cluster is
the group's home, it assigns the topic by these partitions: nothing is lacking.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mesh.re2_expressions import InvalidRe2Error, compiled
from services.gateway.requests.groups.group_home import owners
from services.gateway.requests.plan import Command, MeshView, Unreachable, refresh
from services.gateway.requests.topic_ids import look_around
from services.gateway.requests.topic_names import is_internal

MOST_NAMED = 20
"""Most topics of one cluster that a refusal names."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A topic of another cluster whose partitions the group's home can't assign, or not all of them."""

    topic: str
    owner: str
    partitions: int
    at_home: int
    """Partitions that the home has: 0 if it has no such topic."""


def matching_topics(regex: str, mesh: MeshView) -> Generator[Command, Any, list[str]]:
    """Topics of all clusters that match a subscription by RE2 expression; none if the expression is invalid."""
    try:
        compiled(regex)
    except InvalidRe2Error:
        return []
    yield from look_around(mesh)
    known = (
        topic
        for cluster, knowledge in mesh.clusters.items()
        for topic in knowledge.topics
        if not is_internal(topic) and mesh.table.cluster_of(topic) == cluster
    )
    return sorted(matching(regex, known))


def matching(regex: str, topics: Iterable[str]) -> list[str]:
    """Those of the topics that match an RE2 expression as a whole; none if the expression is invalid."""
    try:
        pattern = compiled(regex)
    except InvalidRe2Error:
        return []
    return [topic for topic in topics if pattern.fullmatch(topic)]


def renamed_topics(group_id: str, topics: Iterable[str], mesh: MeshView) -> str | None:
    """The sentence of the refusal, if the cluster knows some of the topics by other names.

    A cluster matches an expression with its own names.
    """
    routes = ((topic, mesh.table.route(topic)) for topic in topics)
    renamed = sorted(topic for topic, route in routes if route is not None and route.upstream_topic != topic)
    if not renamed:
        return None
    return (
        f"group {group_id} subscribes by expression to topics that have other names on their cluster "
        f"({', '.join(renamed)}): subscribe to them by name, or use group.protocol=classic"
    )


def lacking(topics: Iterable[str], home: str, mesh: MeshView) -> Generator[Command, Any, list[Lack] | Unreachable]:
    """Those of the topics that the home lacks; or an unreachable cluster, if nothing is known yet of its topics."""
    lacks: list[Lack] = []
    foreign = {owner: found for owner, found in owners(topics, mesh).items() if owner != home}
    if foreign:
        outcome = yield from refresh(home, sorted(topic for found in foreign.values() for topic in found))
        if outcome is not None:
            return outcome
    for owner, found in foreign.items():
        outcome = yield from refresh(owner, sorted(found))
        for topic in found:
            partitions = mesh.clusters[owner].partition_count(topic)
            at_home = mesh.clusters[home].partition_count(topic) or 0
            if partitions is None and outcome is not None and not at_home:
                return outcome
            if partitions is not None and partitions > at_home:
                lacks.append(Lack(topic, owner, partitions, at_home))
    return lacks


def foreign_topics(group_id: str, topics: Iterable[str], home: str, way_out: str, mesh: MeshView) -> str | None:
    """The sentence of the refusal, if some topics are on other clusters.

    It is for groups that read only topics of their home.
    """
    lacks = [
        Lack(topic, owner, 0, 0) for owner, found in owners(topics, mesh).items() for topic in found if owner != home
    ]
    return refusal(group_id, home, lacks, way_out) if lacks else None


def refusal(group_id: str, home: str, lacks: Sequence[Lack], way_out: str) -> str:
    """The sentence for a member that subscribes to topics that its group's home does not have."""
    places: dict[str, list[str]] = {}
    for lack in lacks:
        places.setdefault(lack.owner, []).append(lack.topic)
    named = "; ".join(f"cluster {owner}: {_listed(sorted(topics))}" for owner, topics in places.items())
    return f"group {group_id} lives on cluster {home}, but subscribes to topics of other clusters ({named}): {way_out}"


def _listed(topics: Sequence[str]) -> str:
    more = len(topics) - MOST_NAMED
    return ", ".join(topics[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
