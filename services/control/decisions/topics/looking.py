"""Asks all clusters for their topics and groups, and keeps the answers for seconds: pages of a list share them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from mesh.routing import Place, RoutingTable, UpstreamCluster
from mesh.stitches import LogPart
from services.control.decisions.rules.questions import answers_of
from services.control.domain.log_ranges import LogRange
from services.control.domain.stitches.logs import as_clients_see, in_force, log_of
from services.control.domain.topics.groups import GroupType, MeshGroup, SeenGroup, groups_of
from services.control.domain.topics.topics import Committed, SeenTopic, is_internal, reading, seen_topic
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError
from services.control.upstream.groups import GroupMember
from services.control.upstream.log_sizes import log_sizes
from services.control.upstream.newer_groups import NewerGroup, newer_groups

T = TypeVar("T")

TOPICS_KEPT_S: Final = 3.0
"""Seconds: 10,000 topics are asked for in a tenth of one."""
GROUPS_KEPT_S: Final = 10.0
"""Seconds: each group's coordinator is asked."""
AT_ONCE: Final = 500
"""Topics that are looked up in the table before other calls have their turn."""


@dataclass(frozen=True, slots=True)
class AllTopics:
    """The topics of the clusters that answered."""

    topics: tuple[SeenTopic, ...]
    unreached: int
    """Topics that no client's name leads to."""
    problems: tuple[str, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class AllReaders:
    """The offsets of all groups on the clusters that answered."""

    reading: Mapping[str, Mapping[str, Mapping[int, int]]]
    """Topic -> group -> partition -> offset."""
    silent: Mapping[str, str]
    """Clusters that did not answer, with a sentence."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The offsets of some groups."""

    by_group: Mapping[str, Mapping[str, Mapping[int, int]]]
    """Group -> topic -> partition -> offset."""
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllGroups:
    """The groups of the clusters that answered, by name."""

    groups: Mapping[str, MeshGroup]
    problems: tuple[str, ...]


class Kept(Generic[T]):
    """The answer to a question while it is fresh. Callers at the same time share one question."""

    def __init__(self, ask: Callable[[], Awaitable[T]], fresh_s: float) -> None:
        self._ask, self._fresh_s = ask, fresh_s
        self._asked: asyncio.Task[T] | None = None
        self._key: object = None
        self._until = 0.0

    async def get(self, key: object) -> T:
        """`key`: an answer for another key is not fresh."""
        loop = asyncio.get_running_loop()
        asked = self._asked
        failed = asked is not None and asked.done() and (asked.cancelled() or asked.exception() is not None)
        if asked is None or failed or key != self._key or (asked.done() and loop.time() > self._until):
            asked = self._asked = asyncio.create_task(self._answer(), name="look at all clusters")
            self._key = key
        return await asyncio.shield(asked)

    async def _answer(self) -> T:
        answer = await self._ask()
        self._until = asyncio.get_running_loop().time() + self._fresh_s
        return answer


class Looking:
    """Topics and groups of all clusters."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self._journal = journal
        self._connections = connections
        self._topics = Kept(self._all_topics, TOPICS_KEPT_S)
        self._readers = Kept(self._all_readers, GROUPS_KEPT_S)
        self._groups = Kept(self._all_groups, TOPICS_KEPT_S)

    @property
    def _table(self) -> RoutingTable:
        return self._journal.view.state.effective

    async def topics(self) -> AllTopics:
        return await self._topics.get(self._table.revision)

    async def readers(self) -> AllReaders:
        return await self._readers.get(self._table.revision)

    async def groups(self) -> AllGroups:
        return await self._groups.get(self._table.revision)

    async def logs(
        self,
        topics: Iterable[tuple[str, Place, int]],
        *,
        known_only: bool = False,
        without: Collection[str] = (),
    ) -> tuple[dict[str, dict[int, LogRange]], list[str]]:
        """Topic -> partition -> offsets as clients see them, of topics at their places; and a sentence for each cluster
        that is silent.

        `known_only`: a partition that its cluster does not tell is left out, and takes no other one with it. `without`:
        clusters that are not asked for the earlier parts of stitched logs.
        """
        wanted: dict[str, dict[str, int]] = {}
        names: dict[Place, str] = {}
        for topic, place, partitions in topics:
            wanted.setdefault(place.cluster, {})[place.upstream_topic] = partitions
            names[place] = topic
        asked = {
            name: self._connections.log_ranges(self._table.clusters[name], there, known_only=known_only)
            for name, there in wanted.items()
        }
        found, silent = await answers_of(asked)
        logs = {names[Place(cluster, topic)]: log for cluster, there in found.items() for topic, log in there.items()}
        silent |= await self._stitch(logs, {topic: place for place, topic in names.items()}, without)
        return logs, [str(each) for each in silent.values()]

    async def _stitch(
        self, logs: dict[str, dict[int, LogRange]], places: Mapping[str, Place], without: Collection[str]
    ) -> dict[str, UnreachableError]:
        """Makes logs of clusters those that clients see. Clusters that do not answer: their parts count as whole."""
        stitched = {topic: parts for topic in logs if (parts := self._parts(topic, places[topic]))}
        wanted: dict[str, dict[str, int]] = {}
        for parts in stitched.values():
            for part in parts[:-1]:
                if part.cluster in self._table.clusters and part.cluster not in without:
                    wanted.setdefault(part.cluster, {})[part.topic] = len(part.shifts)
        found, silent = await answers_of(
            {
                name: self._connections.log_ranges(self._table.clusters[name], there, known_only=True)
                for name, there in wanted.items()
            }
        )
        for topic, parts in stitched.items():
            old = {
                place: {number: each.start for number, each in found.get(part.cluster, {}).get(part.topic, {}).items()}
                for place, part in enumerate(parts[:-1])
            }
            logs[topic] = as_clients_see(parts, logs[topic], old)
        return silent

    def _parts(self, topic: str, place: Place) -> tuple[LogPart, ...]:
        """The parts of the topic's log; none if the log is not stitched."""
        log, route = log_of(self._table, topic), self._table.route(topic)
        is_there = route is not None and Place(route.cluster, route.upstream_topic) == place
        return in_force(log, route.stay) if route is not None and is_there else ()

    async def committed(self, groups: Collection[MeshGroup]) -> tuple[Committed, set[str], list[str]]:
        """The offsets of these groups on the clusters that know them; and the share groups among them."""
        wanted: dict[str, list[str]] = {}
        for group in groups:
            for cluster in group.clusters:
                wanted.setdefault(cluster, []).append(group.name)
        asked: dict[str, Any] = {
            name: self._committed_on(self._table.clusters[name], there)
            for name, there in wanted.items()
            if name in self._table.clusters
        }
        found, silent = await answers_of(asked)
        return *_in_one(found), [str(each) for each in silent.values()]

    async def offsets(self, groups: Collection[MeshGroup]) -> GroupOffsets:
        """The offsets that members of these groups use, by the names that clients know."""
        committed, shares, silent = await self.committed(groups)
        by_group: dict[str, dict[str, Mapping[int, int]]] = {} if silent else {each.name: {} for each in groups}
        for topic, readers in reading(self._table, committed, shares).items():
            for group, offsets in readers.items():
                by_group.setdefault(group, {})[topic] = offsets
        return GroupOffsets(by_group, tuple(silent))

    async def sizes(self, topics: Collection[SeenTopic]) -> tuple[dict[str, int], list[str]]:
        """Topic -> bytes on disk, on all clusters of its log; a sentence for each cluster that does not tell them."""
        wanted: dict[str, dict[str, int]] = {}
        names: dict[Place, str] = {}
        for each in topics:
            earlier = [part for part in self._parts(each.name, each.place)[:-1] if not part.is_past]
            for place in (each.place, *(Place(part.cluster, part.topic) for part in earlier)):
                wanted.setdefault(place.cluster, {})[place.upstream_topic] = each.partitions
                names[place] = each.name
        clusters = self._table.clusters
        asked = {name: log_sizes(clusters[name], there) for name, there in wanted.items() if name in clusters}
        found, silent = await answers_of(asked)
        sizes: dict[str, int] = {}
        for cluster, there in found.items():
            for topic, size in there.items():
                name = names[Place(cluster, topic)]
                sizes[name] = sizes.get(name, 0) + size
        return sizes, [str(each) for each in silent.values()]

    async def logs_of(self, names: Collection[str]) -> tuple[dict[str, dict[int, LogRange]], list[str]]:
        """As `logs`, of the topics with these names that exist."""
        known = [each for each in (await self.topics()).topics if each.name in names] if names else []
        return await self.logs((each.name, each.place, each.partitions) for each in known)

    async def known_logs(
        self, partitions: Mapping[str, int], without: Collection[str]
    ) -> tuple[dict[str, dict[int, LogRange]], list[str]]:
        """As `logs`, of so many partitions of each topic where rules lead to; nothing of some clusters is asked."""
        routes = {topic: self._table.route(topic) for topic in partitions}
        wanted = (
            (topic, Place(route.cluster, route.upstream_topic), partitions[topic])
            for topic, route in routes.items()
            if route is not None and route.cluster not in without
        )
        return await self.logs(wanted, known_only=True, without=without)

    async def groups_without(self, clusters: Collection[str]) -> AllGroups:
        """The groups now; some clusters are not asked."""
        return await self._groups_of({name for name in self._table.clusters if name not in clusters})

    async def members(self, groups: Collection[MeshGroup]) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
        """The members of these groups at their homes."""
        wanted: dict[str, list[str]] = {}
        for group in groups:
            if group.home in self._table.clusters:
                wanted.setdefault(group.home, []).append(group.name)
        asked = {name: self._members_on(self._table.clusters[name], there) for name, there in wanted.items()}
        found, silent = await answers_of(asked)
        return {group: who for there in found.values() for group, who in there.items()}, [
            str(each) for each in silent.values()
        ]

    async def _all_topics(self) -> AllTopics:
        table = self._table
        asked = {name: self._connections.topics(cluster) for name, cluster in table.clusters.items()}
        found, silent = await answers_of(asked)
        topics: list[SeenTopic] = []
        unreached = looked_at = 0
        for cluster, there in found.items():
            for upstream_topic, partitions in there.items():
                if is_internal(upstream_topic):
                    continue
                looked_at += 1
                if looked_at % AT_ONCE == 0:
                    await asyncio.sleep(0)
                seen = seen_topic(table, Place(cluster, upstream_topic), partitions)
                if seen is None:
                    unreached += 1
                else:
                    topics.append(seen)
        return AllTopics(tuple(topics), unreached, tuple(map(str, silent.values())), table.revision)

    async def _all_readers(self) -> AllReaders:
        table = self._table
        asked = {name: self._committed_on(cluster) for name, cluster in table.clusters.items()}
        found, silent = await answers_of(asked)
        return AllReaders(reading(table, *_in_one(found)), {name: str(error) for name, error in silent.items()})

    async def _all_groups(self) -> AllGroups:
        return await self._groups_of(self._table.clusters.keys())

    async def _groups_of(self, clusters: Collection[str]) -> AllGroups:
        table = self._table
        asked = {name: self._seen_on(table.clusters[name]) for name in clusters}
        found, silent = await answers_of(asked)
        names = {name for there in found.values() for name in there}
        rules = {name: table.group_rule(name) for name in names}
        homes = {name: rule.target_cluster for name, rule in rules.items() if rule is not None}
        return AllGroups(groups_of(found, homes), tuple(map(str, silent.values())))

    async def _seen_on(self, cluster: UpstreamCluster) -> dict[str, SeenGroup]:
        older, newer = await asyncio.gather(self._connections.seen_groups(cluster), newer_groups(cluster))
        return older | {name: group.seen for name, group in newer.items()}

    async def _members_on(self, cluster: UpstreamCluster, names: Sequence[str]) -> dict[str, tuple[GroupMember, ...]]:
        newer = await newer_groups(cluster)
        older = await self._connections.members_of_all(cluster, [name for name in names if name not in newer])
        told = {name: newer[name].members for name in names if name in newer}
        return older | {name: members for name, members in told.items() if members is not None}

    async def _committed_on(
        self, cluster: UpstreamCluster, names: Collection[str] | None = None
    ) -> tuple[dict[str, Mapping[tuple[str, int], int]], set[str]]:
        """The offsets of these groups, or of all; and the share groups, which commit none."""
        newer = await newer_groups(cluster)
        shares = {name for name, group in newer.items() if group.seen.type is GroupType.SHARE}
        if names is None:
            committed = await self._connections.committed(cluster)
            if streams := newer.keys() - shares:  # which confluent-kafka does not list
                committed |= await self._connections.committed(cluster, streams)
        else:
            shares &= set(names)
            committed = await self._connections.committed(cluster, [name for name in names if name not in shares])
        return {**committed, **await self._share_offsets(cluster, {name: newer[name] for name in shares})}, shares

    async def _share_offsets(
        self, cluster: UpstreamCluster, groups: Mapping[str, NewerGroup]
    ) -> dict[str, dict[tuple[str, int], int]]:
        """A share group settles records in any order: its offset is here the end without its lag."""
        read: dict[str, int] = {}
        for topic, partition in chain.from_iterable(group.share_lags for group in groups.values()):
            read[topic] = max(read.get(topic, 0), partition + 1)
        logs = await self._connections.log_ranges(cluster, read, known_only=True) if read else {}
        return {
            name: {
                (topic, partition): logs[topic][partition].end - lag
                for (topic, partition), lag in group.share_lags.items()
                if partition in logs.get(topic, {})
            }
            for name, group in groups.items()
        }


def _in_one(
    told: Mapping[str, tuple[Mapping[str, Mapping[tuple[str, int], int]], set[str]]],
) -> tuple[Committed, set[str]]:
    """The offsets by cluster, and the share groups of all clusters."""
    shares = {name for _, there in told.values() for name in there}
    return {cluster: offsets for cluster, (offsets, _) in told.items()}, shares
