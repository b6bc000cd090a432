"""The questions of a decision to the clusters that it concerns, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from mesh.routing import Place, RoutingTable, UpstreamCluster
from services.control.domain.errors import Unavailable
from services.control.domain.log_ranges import LogRange
from services.control.domain.rules.moves import Move
from services.control.upstream.connections import Connections, UnreachableError

T = TypeVar("T")
Committed = Mapping[str, Mapping[int, int]]
"""Group -> partition -> offset."""


class ClusterQuestions:
    """The questions of one decision.

    If a cluster does not answer, the decision is refused. If the caller allows it, the answers leave out the cluster
    instead.
    """

    def __init__(self, connections: Connections, *, allow_unreachable: bool) -> None:
        self._connections = connections
        self._allow_unreachable = allow_unreachable
        self.silent: dict[str, str] = {}
        """Clusters that did not answer, with the reason."""

    async def topics(self, table: RoutingTable, names: Iterable[str], what: str) -> dict[str, dict[str, int]]:
        """Cluster -> topics there -> number of partitions."""
        questions = {name: self._connections.topics(table.clusters[name]) for name in sorted(names)}
        return await self._answers(questions, what)

    async def logs(
        self,
        clusters: Mapping[str, UpstreamCluster],
        moves: Iterable[Move],
        topics: Mapping[str, Mapping[str, int]],
    ) -> dict[Place, Mapping[int, LogRange]]:
        """The offsets of the logs before and after the move; empty for topics that do not exist yet."""
        places = {place for move in moves for place in (move.source, move.target) if place is not None}
        known = {place: topics[place.cluster].get(place.upstream_topic) for place in places if place.cluster in topics}
        wanted: dict[str, dict[str, int]] = {}
        for (cluster, topic), partitions in known.items():
            if partitions is not None:
                wanted.setdefault(cluster, {})[topic] = partitions
        questions = {name: self._connections.log_ranges(clusters[name], there) for name, there in wanted.items()}
        found = await self._answers(questions, "logs of topics that move")
        logs: dict[Place, Mapping[int, LogRange]] = {place: {} for place, count in known.items() if count is None}
        return logs | {Place(cluster, topic): log for cluster, there in found.items() for topic, log in there.items()}

    async def positions(
        self,
        clusters: Mapping[str, UpstreamCluster],
        places: Iterable[Place],
        groups: Collection[str] | None,
    ) -> dict[Place, Committed]:
        """Committed offsets of the groups (of all groups, for None)."""
        questions = {
            name: self._connections.positions(clusters[name], topics, groups)
            for name, topics in by_cluster(places).items()
        }
        found = await self._answers(questions, "groups that read topics that move")
        return {Place(cluster, topic): by for cluster, there in found.items() for topic, by in there.items()}

    async def settings(
        self, clusters: Mapping[str, UpstreamCluster], places: Iterable[Place], names: Collection[str]
    ) -> dict[Place, dict[str, str]]:
        """The effective values of these settings for the topics there, defaults of the cluster included."""
        questions = {
            name: self._connections.effective_settings(clusters[name], topics, names)
            for name, topics in by_cluster(places).items()
        }
        found = await self._answers(questions, "settings of topics that move")
        return {Place(cluster, topic): said for cluster, there in found.items() for topic, said in there.items()}

    async def readers(self, clusters: Iterable[UpstreamCluster]) -> dict[str, dict[str, set[str]]]:
        """Cluster -> group -> topics there for which the group has committed offsets."""
        questions = {cluster.name: self._connections.readers(cluster) for cluster in clusters}
        return await self._answers(questions, "groups of clusters that topics move between")

    async def _answers(self, questions: Mapping[str, Coroutine[Any, Any, T]], what: str) -> dict[str, T]:
        answers, silent = await answers_of(questions)
        for name, error in silent.items():
            if not self._allow_unreachable:
                raise Unavailable(
                    "CLUSTER_UNREACHABLE",
                    f"{error}; the {what} can't be checked, so the rules stay as they are; "
                    "to change them unchecked set allow_unreachable",
                    {"cluster": name},
                )
            self.silent[name] = str(error)
        return answers


async def answers_of(
    questions: Mapping[str, Coroutine[Any, Any, T]],
) -> tuple[dict[str, T], dict[str, UnreachableError]]:
    """The answers of the clusters that answer, and the errors of the others."""
    answers = await asyncio.gather(*questions.values(), return_exceptions=True)
    found: dict[str, T] = {}
    silent: dict[str, UnreachableError] = {}
    for name, answer in zip(questions, answers, strict=True):
        if isinstance(answer, UnreachableError):
            silent[name] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[name] = answer
    return found, silent


def by_cluster(places: Iterable[Place]) -> dict[str, list[str]]:
    """Cluster -> the topics there."""
    found: dict[str, list[str]] = {}
    for cluster, topic in places:
        found.setdefault(cluster, []).append(topic)
    return found
