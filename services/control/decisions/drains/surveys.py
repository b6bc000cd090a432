"""Surveys of a cluster that is drained: the topics at the beginning, and what is still there at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from mesh.routing import Place, UpstreamCluster
from mesh.rpc import drains
from services.control.decisions.topic_moves.preparation import SETTINGS
from services.control.decisions.topics.looking import AT_ONCE, Looking
from services.control.domain.drains.drains import MOST_NAMED
from services.control.domain.drains.plans import Candidate, chosen
from services.control.domain.errors import Unavailable
from services.control.domain.topic_moves.moves import Side
from services.control.domain.topics.topics import SeenTopic, is_internal, seen_topic
from services.control.store.journal import Journal
from services.control.upstream.broker_connections import CoordinatorRefusedError
from services.control.upstream.connections import Connections, UnreachableError
from services.control.upstream.log_sizes import log_sizes
from services.control.upstream.transactions import TransactionCoordinators

MOST_CHARACTERS: Final = 100_000
"""The names of one kind have so many: clients choose ids of any length, and all names are in one event."""


class Names(Protocol):
    """A repeated field of texts."""

    def append(self, item: str, /) -> None: ...
    def __len__(self) -> int: ...


class Surveys:
    """Asks both clusters of a drain."""

    def __init__(self, journal: Journal, connections: Connections, looking: Looking) -> None:
        self._journal = journal
        self._connections = connections
        self._looking = looking
        self._coordinators = TransactionCoordinators()

    async def candidates(self, spec: drains.DrainSpec, only: Collection[str] | None = None) -> list[Candidate]:
        """The topics that the drain is about. Refused if a cluster does not answer. `only`: see `chosen`."""
        clusters = self._journal.view.state.effective.clusters
        source, target = clusters[spec.source_cluster], clusters[spec.target_cluster]
        try:
            here, there = await asyncio.gather(self._connections.topics(source), self._connections.topics(target))
            seen = chosen(spec, await self._seen(source, here), only)
            places = {each.name: Place(target.name, each.place.upstream_topic) for each in seen}
            settings_here, settings_there, sizes = await asyncio.gather(
                self._settings(source, [each.place.upstream_topic for each in seen]),
                self._settings(
                    target, [each.upstream_topic for each in places.values() if each.upstream_topic in there]
                ),
                _sizes(source, seen),
            )
        except UnreachableError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; the drain can't be planned") from None
        return [
            Candidate(
                each.name,
                Side(each.place, each.partitions, settings_here.get(each.place.upstream_topic, {})),
                Side(
                    places[each.name],
                    there.get(each.place.upstream_topic, 0),
                    settings_there.get(each.place.upstream_topic, {}),
                ),
                sizes.get(each.place.upstream_topic),
            )
            for each in seen
        ]

    async def remainder(self, cluster_name: str) -> drains.DrainRemainder:
        """The topics, groups and transactional ids that are still on the cluster."""
        table = self._journal.view.state.effective
        cluster = table.clusters.get(cluster_name)
        if cluster is None:
            return drains.DrainRemainder(problems=[f"cluster {cluster_name!r} is not registered any more"])
        topics, groups = await asyncio.gather(self._looking.topics(), self._looking.groups())
        found = drains.DrainRemainder(problems=dict.fromkeys([*topics.problems, *groups.problems]))
        _name(
            found, found.topics, "topics", (each.name for each in topics.topics if each.place.cluster == cluster.name)
        )
        _name(
            found, found.groups, "groups", (each.name for each in groups.groups.values() if each.home == cluster.name)
        )
        _name(
            found, found.rules, "rules", (each.rule_id for each in table.rules if each.target_cluster == cluster.name)
        )
        try:
            listed = await self._coordinators.listed(cluster)
        except (UnreachableError, CoordinatorRefusedError, TimeoutError) as error:
            found.problems.append(f"the transactional ids are not known: {str(error) or 'no answer in time'}")
        else:
            _name(found, found.transactional_ids, "transactional ids", listed)
        return found

    async def _seen(self, cluster: UpstreamCluster, topics: Mapping[str, int]) -> list[SeenTopic]:
        """The topics that clients reach there."""
        table = self._journal.view.state.effective
        found: list[SeenTopic] = []
        for number, (name, partitions) in enumerate(topics.items()):
            if not number % AT_ONCE:
                await asyncio.sleep(0)
            seen = None if is_internal(name) else seen_topic(table, Place(cluster.name, name), partitions)
            if seen is not None:
                found.append(seen)
        return found

    async def _settings(self, cluster: UpstreamCluster, topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return await self._connections.effective_settings(cluster, topics, SETTINGS) if topics else {}


async def _sizes(cluster: UpstreamCluster, seen: Collection[SeenTopic]) -> dict[str, int]:
    """By the names on the cluster. A cluster may tell no sizes; the plan has no times then."""
    try:
        return await log_sizes(cluster, {each.place.upstream_topic: each.partitions for each in seen})
    except UnreachableError:
        return {}


def _name(found: drains.DrainRemainder, into: Names, what: str, names: Iterable[str]) -> None:
    every = sorted(names)
    size = 0
    for each in every[:MOST_NAMED]:
        size += len(each)
        if size > MOST_CHARACTERS:
            break
        into.append(each)
    if len(into) < len(every):
        found.problems.append(f"{len(every) - len(into)} more {what} are there, and do not fit here")
