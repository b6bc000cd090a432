"""From where to where: which topic of which cluster is copied to which, and who keeps how far that is. No I/O."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from mesh.rpc import replays
from services.pipeline.copying.errors import RefusedError

SAME_NAME = "{topic}"
"""In the target's name: the name of what is read."""
SLOTS = "mesh.replays"
"""Topic on each target cluster, without records: groups keep offsets of its partitions, which are the sources'."""

MARK_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one topic's records."""

    topic: str
    """As clients know it, and the archive, and who ordered the replay."""
    source_cluster: str
    source_topic: str
    target_cluster: str
    target_topic: str
    group: str
    """On the target cluster: keeps how far the topic is, in offsets of SLOTS."""

    def __str__(self) -> str:
        return f"{self.source_cluster}/{self.source_topic} to {self.target_cluster}/{self.target_topic}"


def group_of(replay: replays.Replay) -> str:
    """The name that all groups and transactional ids of a replay begin with."""
    return replay.spec.topic.group or f"mesh-replay-{replay.name.removeprefix('replays/')}"


def routes_of(replay: replays.Replay) -> dict[str, Route]:
    """The route of each topic that is read, by its name. RefusedError: it leads nowhere, or into itself."""
    copy = replay.spec.topic
    topics = list(dict.fromkeys(each.topic for each in replay.spec.ranges))
    if replay.spec.dead_letters:
        raise RefusedError(
            "dead letters are copied as records of any topic are: name the topic that holds them, without dead_letters"
        )
    places = {each.topic: each for each in replay.places}
    group = group_of(replay)
    routes = {}
    for topic in topics:
        source_cluster, source_topic = _place(topic, copy.source_cluster, places)
        target = (copy.topic or SAME_NAME).replace(SAME_NAME, topic)
        target_cluster, target_topic = _place(target, copy.cluster, places)
        own_group = group if len(topics) == 1 else f"{group}.{topic}"
        route = Route(topic, source_cluster, source_topic, target_cluster, target_topic, own_group)
        is_restore = copy.archive == replays.REPLAY_ARCHIVE_ONLY
        if (source_cluster, source_topic) == (target_cluster, target_topic) and not is_restore:
            raise RefusedError(
                f"{source_cluster}/{source_topic} is what is read, and would get its own records again; "
                "name another topic, or another cluster"
            )
        routes[topic] = route
    targets = [(each.target_cluster, each.target_topic) for each in routes.values()]
    if len(set(targets)) < len(targets):
        raise RefusedError(f"records of {len(targets)} topics would mix in one; put {SAME_NAME} into the target's name")
    return routes


def mark_of(route: Route, replay: replays.Replay, target_id: str) -> str:
    """Of two copies alike, if they are of the same records and become the same: how fast, and by whom, is no matter.

    A target that was created again is another one: what was copied before is not in it.
    """
    copy = replay.spec.topic
    said = hashlib.sha256(f"{route} {target_id} {copy.timestamps == replays.REPLAY_TIMESTAMPS_NOW}".encode())
    said.update(f"{copy.partitioning == replays.REPLAY_PARTITIONING_BY_KEY} {copy.filter!r}".encode())
    ranges = [each for each in replay.spec.ranges if each.topic == route.topic]
    for each in (*ranges, *copy.transforms):
        said.update(each.SerializeToString(deterministic=True))
    return said.hexdigest()[:MARK_LENGTH]


def _place(topic: str, told: str, places: dict[str, replays.ReplayPlace]) -> tuple[str, str]:
    """Cluster, and name there."""
    if told:
        return told, topic
    if topic not in places:
        raise RefusedError(f"topic {topic!r} lives nowhere: no rule leads to a cluster; name the cluster")
    return places[topic].cluster, places[topic].upstream_topic or topic
