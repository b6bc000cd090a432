"""The routes of a replay: source and target topic and cluster, and the group that keeps the progress. No I/O."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from mesh.rpc import replays
from services.pipeline.copying.errors import RefusedError

SAME_NAME = "{topic}"
"""In the target's name: stands for the name of the source topic."""
SLOTS = "mesh.replays"
"""A topic without records on each target cluster; groups keep offsets for its partitions, one per source partition."""

MARK_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Route:
    """The route of one topic's records."""

    topic: str
    """The topic's name for clients, in the archive and in the order."""
    source_cluster: str
    source_topic: str
    target_cluster: str
    target_topic: str
    group: str
    """The group on the target cluster that keeps the topic's progress, in offsets of SLOTS."""

    def __str__(self) -> str:
        return f"{self.source_cluster}/{self.source_topic} to {self.target_cluster}/{self.target_topic}"


def group_of(replay: replays.Replay) -> str:
    """The common prefix of all groups and transactional ids of a replay."""
    return replay.spec.topic.group or f"mesh-replay-{replay.name.removeprefix('replays/')}"


def routes_of(replay: replays.Replay) -> dict[str, Route]:
    """The route of each source topic, by its name. RefusedError: a route has no target, or its source as target."""
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
    """A mark that is the same for two copies with the same records and the same results; rate and member don't matter.

    If the target was created again, the mark differs, because the new topic lacks the earlier copies.
    """
    copy = replay.spec.topic
    said = hashlib.sha256(f"{route} {target_id} {copy.timestamps == replays.REPLAY_TIMESTAMPS_NOW}".encode())
    said.update(f"{copy.partitioning == replays.REPLAY_PARTITIONING_BY_KEY} {copy.filter!r}".encode())
    ranges = [each for each in replay.spec.ranges if each.topic == route.topic]
    for each in (*ranges, *copy.transforms):
        said.update(each.SerializeToString(deterministic=True))
    return said.hexdigest()[:MARK_LENGTH]


def _place(topic: str, told: str, places: dict[str, replays.ReplayPlace]) -> tuple[str, str]:
    """The cluster, and the topic's name on the cluster."""
    if told:
        return told, topic
    if topic not in places:
        raise RefusedError(f"topic {topic!r} lives nowhere: no rule leads to a cluster; name the cluster")
    return places[topic].cluster, places[topic].upstream_topic or topic
