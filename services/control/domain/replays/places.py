"""The places of the topics of a copy or a profile, by the routing table and by the answers of the clusters.

If a replay names a topic with its cluster, the topic is on that cluster under this very name. Any other topic is at its
place for clients of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mesh.routing import Place, RoutingTable
from mesh.rpc import replays
from services.control.domain.errors import InvalidField
from services.control.domain.records.checks import check_cluster
from services.control.domain.records.needs import TopicNeed
from services.control.domain.replays.copies import target_of, topics_of
from services.control.domain.replays.plans import place_of
from services.control.domain.stitches.logs import refuse_offsets

TARGET = "spec.topic.topic"


@dataclass(frozen=True, slots=True)
class ReplayPlaces:
    """The places of the topics of one replay, by their names in the replay."""

    sources: Mapping[str, Place]
    targets: Mapping[str, Place]
    """Empty for a profile."""
    routed: Mapping[str, Place]
    """The sources and targets that the routing table has placed; the replay carries these places."""

    @property
    def clusters(self) -> set[str]:
        return {place.cluster for place in (*self.sources.values(), *self.targets.values())}

    def to_proto(self) -> Iterator[replays.ReplayPlace]:
        for topic, place in self.routed.items():
            yield replays.ReplayPlace(topic=topic, cluster=place.cluster, upstream_topic=place.upstream_topic)


def places_of(spec: replays.ReplaySpec, table: RoutingTable) -> ReplayPlaces:
    """The places of a checked copy or profile. InvalidField if a topic has no place, or would be copied to itself."""
    copy, topics = spec.topic, topics_of(spec)
    if spec.HasField("topic") and not copy.source_cluster:
        for topic in topics:
            refuse_offsets(table, topic)
    way_out = "set topic.source_cluster to read it from a cluster all the same" if spec.HasField("topic") else ""
    sources = {
        topic: _place(table, topic, copy.source_cluster, f"spec.ranges[{_first(spec, topic)}].topic", way_out)
        for topic in topics
    }
    if not spec.HasField("topic"):
        return ReplayPlaces(sources, {}, sources)
    way_out = "set topic.cluster to write it on a cluster all the same"
    names = [target_of(copy, topic) for topic in topics]
    targets = {name: _place(table, name, copy.cluster, TARGET, way_out) for name in names}
    for name, place in targets.items():
        if place in sources.values():
            text = f"{name!r} is {place.upstream_topic!r} on {place.cluster!r}, which is read"
            raise InvalidField(TARGET, f"{text}, and would get its own records again; name another topic, or cluster")
    routed = ({} if copy.source_cluster else sources) | ({} if copy.cluster else targets)
    return ReplayPlaces(sources, targets, routed)


def check_there(spec: replays.ReplaySpec, places: ReplayPlaces, topics: Mapping[str, Mapping[str, int]]) -> None:
    """InvalidField if a cluster that answered lacks a topic or partition. `topics`: cluster -> topic -> partitions."""
    for need in _needs(spec, places, topics):
        problem = need.unmet(topics[need.cluster]) if need.cluster in topics else ""
        if problem and need.field == TARGET and need.topic in topics[need.cluster]:
            raise InvalidField("spec.topic.partitioning", f"{problem}; add some, or set partitioning to BY_KEY")
        if problem:
            raise InvalidField(need.field, problem)


def _needs(
    spec: replays.ReplaySpec, places: ReplayPlaces, topics: Mapping[str, Mapping[str, int]]
) -> Iterable[TopicNeed]:
    copy = spec.topic
    for number, asked in enumerate(spec.ranges):
        source, field = places.sources[asked.topic], f"spec.ranges[{number}]"
        there = topics.get(source.cluster, {}).get(source.upstream_topic)
        last = asked.partition + 1 if asked.HasField("partition") else 0
        if there is not None or copy.archive in (
            replays.REPLAY_ARCHIVE_UNSPECIFIED,
            replays.REPLAY_ARCHIVE_NEVER,
        ):  # the archive may have a topic that Kafka no longer has
            yield TopicNeed(source.cluster, source.upstream_topic, f"{field}.{'partition' if last else 'topic'}", last)
        if places.targets:
            target = places.targets[target_of(copy, asked.topic)]
            keeps = copy.partitioning != replays.REPLAY_PARTITIONING_BY_KEY
            yield TopicNeed(target.cluster, target.upstream_topic, TARGET, (last or there or 0) if keeps else 0)


def _place(table: RoutingTable, topic: str, cluster: str, field: str, way_out: str) -> Place:
    if cluster:
        which = "spec.topic.cluster" if field == TARGET else "spec.topic.source_cluster"
        check_cluster(which, cluster, table.clusters)
        return Place(cluster, topic)
    return place_of(table, topic, field, way_out)


def _first(spec: replays.ReplaySpec, topic: str) -> int:
    return next(number for number, each in enumerate(spec.ranges) if each.topic == topic)
