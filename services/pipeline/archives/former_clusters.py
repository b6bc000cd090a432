"""Clusters from which rules have moved topics: how an archive connects to them, and the topics' names there.

A gateway shows a topic only at its present cluster. Control knows the cluster of each node that a gateway shows, and
the places that a topic has had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from services.pipeline.kafka.clusters import Cluster, ClustersError
from services.pipeline.kafka.positions import RecordsLostError, Stay, StreamError, UnreachableError


class FormerPlaceError(RecordsLostError):
    """Nobody knows under which name a cluster has a topic; the message says why."""


@dataclass(frozen=True, slots=True)
class FormerPlace:
    """A topic's place on a former cluster."""

    text: str = ""
    """{cluster}/{topic's name there}; empty if the cluster is not registered any more."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """librdkafka's properties for the cluster, with resolved secrets."""

    @property
    def cluster(self) -> str:
        return self.text.rpartition("/")[0]


class FormerClusters:
    """Finds the places of stays."""

    def __init__(self, clusters: Callable[[], Mapping[str, Cluster]], places: Callable[[str], Iterable[str]]) -> None:
        """Both ask control, and raise ClustersError if it does not answer.

        `places`: the places that a topic has had, the newest first, as `HistoryEntry.place` has them.
        """
        self._clusters, self._places = clusters, places

    def places_of(self, stays: Mapping[str, Stay]) -> dict[str, FormerPlace | StreamError]:
        """The places of stays by name, or why a place can't be found now."""
        if not stays:
            return {}
        try:
            clusters = self._clusters()
        except ClustersError as error:
            return dict.fromkeys(stays, UnreachableError(f"left records can't be read now: {error}"))
        by_node = {each.node: each for each in clusters.values() if each.node}
        are_all_known = len(by_node) == len(clusters)
        return {name: self._place(name, stay, by_node, are_all_known) for name, stay in stays.items()}

    def _place(
        self, name: str, stay: Stay, by_node: Mapping[str, Cluster], are_all_known: bool
    ) -> FormerPlace | StreamError:
        node, _, topic = name.rpartition("/")
        cluster = by_node.get(node)
        if cluster is None:
            return FormerPlace() if are_all_known else UnreachableError(f"the cluster of node {node} is not known now")
        try:
            place = stay.place or f"{cluster.name}/{self._name_at(topic, cluster.name)}"
            return FormerPlace(place, cluster.properties)
        except ClustersError as error:
            return UnreachableError(f"left records can't be read now: {error}")
        except StreamError as error:
            return error

    def _name_at(self, topic: str, cluster: str) -> str:
        """The name that the topic had last at this cluster."""
        for text in self._places(topic):
            names = {name or topic for at, name in _places_in(text) if at == cluster}
            if len(names) > 1:
                raise FormerPlaceError(
                    f"topic {topic} had several names at {cluster}, by client: {', '.join(sorted(names))}; "
                    "so nobody knows which of them it left; go on without the rest with --accept-loss"
                )
            if names:
                return names.pop()
        raise FormerPlaceError(
            f"control's history does not show topic {topic} at {cluster}, so what was left there can't be found; "
            "go on without it with --accept-loss"
        )


def _places_in(text: str) -> list[tuple[str, str]]:
    """The clusters and names in "c1/name" or "c2 for principal User:ada, c1 for others"; no name is the topic's own."""
    words = [each.partition(" for ")[0].partition("/") for each in text.split(", ")]
    return [(cluster, name) for cluster, _, name in words]
