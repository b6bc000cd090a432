"""Plans of replays: the new position of each partition of a seek or a reset, the places of the topics of a copy.

Control asks clusters and sidecars for them before it decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, TypeVar

import structlog

from mesh.routing import Place, UpstreamCluster
from mesh.rpc import replays
from services.control.decisions.rules.questions import ClusterQuestions, answers_of, by_cluster
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.domain.errors import InvalidField, NotAllowed, Unavailable, Unknown
from services.control.domain.log_ranges import LogRange
from services.control.domain.replays.places import check_there, places_of
from services.control.domain.replays.plans import (
    NOWHERE,
    Member,
    keeper_of,
    new_place,
    partitions_of,
    place_of,
    planned,
    to_be_stopped,
)
from services.control.domain.replays.replays import MAX_PARTITIONS
from services.control.domain.stitches.logs import refuse_offsets
from services.control.domain.topics.groups import GroupType
from services.control.store.journal import Journal
from services.control.store.reports import Reports
from services.control.upstream.connections import Connections
from services.control.upstream.groups import GroupMember
from services.control.upstream.newer_groups import newer_groups

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """The result that a seek or a reset would have."""

    partitions: list[replays.ReplayPartition]
    stopped: list[str] = field(default_factory=list)
    """Instances that have to stop during the reset."""
    note: str = ""
    """The part that the plan leaves out, and the reason."""


class ReplayPlans:
    """Makes the plans."""

    def __init__(self, journal: Journal, reports: Reports, connections: Connections, sidecars: Sidecars) -> None:
        self._journal = journal
        self._reports = reports
        self._connections = connections
        self._sidecars = sidecars

    async def of(self, spec: replays.ReplaySpec) -> Plan:
        """The plan of a seek or a reset; refused if it is not possible."""
        return await (self._of_group(spec) if spec.HasField("group") else self._of_seek(spec))

    async def places(self, spec: replays.ReplaySpec) -> list[replays.ReplayPlace]:
        """The places for a copy or a profile; refused if a topic has no place, or does not exist on its cluster.

        A cluster that does not answer refuses nothing. The member that carries the replay out waits for the cluster.
        """
        table = self._journal.view.state.effective
        places = places_of(spec, table)
        questions = ClusterQuestions(self._connections, allow_unreachable=True)
        check_there(spec, places, await questions.topics(table, places.clusters, "topics of the replay"))
        if questions.silent:
            log.info("control accepts a replay without a check of some topics", clusters=questions.silent)
        return list(places.to_proto())

    async def members(self, group: str) -> list[Member]:
        """The members of a group, on all clusters that may be its home."""
        clusters = self._journal.view.state.effective.clusters
        asked = {name: self._members_there(cluster, group) for name, cluster in clusters.items()}
        found = await _answers(asked, f"whether group {group!r} has members there")
        return [(each.client_id, str(each)) for there in found.values() for each in there]

    async def _members_there(self, cluster: UpstreamCluster, group: str) -> tuple[GroupMember, ...]:
        newer = (await newer_groups(cluster)).get(group)
        if newer is None:
            return await self._connections.members(cluster, group)
        if newer.seen.type is GroupType.SHARE:
            text = (
                f"{group!r} is a share group on cluster {cluster.name!r}: its members settle records in any order, so "
                "it has no committed offset that a reset could set; kafka-share-groups.sh --reset-offsets can reset it"
            )
            raise NotAllowed("SHARE_GROUP", f"groups/{group}", text)
        return newer.members or ()

    async def _of_group(self, spec: replays.ReplaySpec) -> Plan:
        group = spec.group.group
        members = await self.members(group)
        held = self._reports.known.instances
        stopped = to_be_stopped(group, members, held, self._sidecars.is_alive, stop=spec.group.stop)
        wanted = [_Wanted(each, f"spec.ranges[{place}]") for place, each in enumerate(spec.ranges)]
        found = await self._places(wanted, dict.fromkeys({one.asked.topic for one in wanted}))
        committed = await self._committed(group, {each.topic for each in found})
        for each in found:
            each.committed_before = committed.get((each.topic, each.partition), NOWHERE)
        return Plan(found, stopped)

    async def _of_seek(self, spec: replays.ReplaySpec) -> Plan:
        instance = self._reports.known.instances.get(spec.seek.instance)
        if instance is None:
            text = (
                f"no sidecar holds an instance {spec.seek.instance!r}; `meshctl instances list` shows those there are"
            )
            raise Unknown(spec.seek.instance, text)
        heard = self._sidecars.status_of(instance)
        has = {} if heard is None else {(each.topic, each.partition): each for each in heard.status.partitions}
        if not has:
            return Plan([], note=f"sidecar {instance.sidecar!r} has not said which partitions the instance has")
        by_topic: dict[str, set[int]] = {}
        for topic, partition in has:
            by_topic.setdefault(topic, set()).add(partition)
        wanted = [
            _Wanted(_about(each, topic), f"spec.ranges[{place}]")
            for place, each in enumerate(spec.ranges)
            for topic in ([each.topic] if each.topic else sorted(by_topic))
            if topic in by_topic
        ]
        try:
            found = await self._places(wanted, by_topic)
        except Unavailable as error:
            return Plan([], note=error.message)
        for each in found:
            each.committed_before = has[each.topic, each.partition].committed
        return Plan(found)

    async def _places(
        self, wanted: Collection[_Wanted], only: Mapping[str, Collection[int] | None]
    ) -> list[replays.ReplayPartition]:
        """The new position of each partition; `only`: the partitions of a topic that count, None for all."""
        table = self._journal.view.state.effective
        places = {each.asked.topic: place_of(table, each.asked.topic, f"{each.field}.topic") for each in wanted}
        for topic in places:
            refuse_offsets(table, topic)
        logs = await self._logs(places, wanted)
        found: list[replays.ReplayPartition] = []
        for each in wanted:
            topic, log = each.asked.topic, logs[each.asked.topic]
            mine = only[topic]
            chosen = [
                p for p in partitions_of(each.asked, len(log), f"{each.field}.partition") if mine is None or p in mine
            ]
            since = await self._since(places[topic], each.asked, chosen)
            for partition in chosen:
                start = new_place(
                    each.asked, log[partition], since.get(partition, NOWHERE), f"{each.field}.start_offset"
                )
                found.append(planned(topic, places[topic].cluster, partition, start, log[partition]))
        if len(found) > MAX_PARTITIONS:
            text = f"{len(found)} partitions are more than {MAX_PARTITIONS}; do it in several steps"
            raise InvalidField("spec.ranges", text)
        return found

    async def _logs(
        self, places: Mapping[str, Place], wanted: Collection[_Wanted]
    ) -> dict[str, Mapping[int, LogRange]]:
        """The offsets of each topic's log."""
        names = {place.cluster for place in places.values()}
        there = await _answers({name: self._connections.topics(self._cluster(name)) for name in names}, "its topics")
        for each in wanted:
            cluster, upstream_topic = places[each.asked.topic]
            if upstream_topic not in there[cluster]:
                text = f"topic {each.asked.topic!r} does not exist on cluster {cluster!r}, where it lives"
                raise InvalidField(f"{each.field}.topic", text)
        by_cluster = {
            name: {
                place.upstream_topic: there[name][place.upstream_topic] for place in places.values() if place[0] == name
            }
            for name in names
        }
        asked = {name: self._connections.log_ranges(self._cluster(name), topics) for name, topics in by_cluster.items()}
        found = await _answers(asked, "what lies in its topics")
        return {topic: found[place.cluster][place.upstream_topic] for topic, place in places.items()}

    async def _since(self, place: Place, asked: replays.ReplayRange, partitions: Collection[int]) -> Mapping[int, int]:
        if not asked.HasField("start_time"):
            return {}
        times = dict.fromkeys(partitions, asked.start_time.ToDatetime(UTC))
        question = self._connections.offsets_since(self._cluster(place.cluster), place.upstream_topic, times)
        return (await _answers({place.cluster: question}, "which records are how old"))[place.cluster]

    async def _committed(self, group: str, topics: Collection[str]) -> dict[tuple[str, int], int]:
        """The committed offsets of a group, by the names of topics for clients."""
        table = self._journal.view.state.effective
        keepers = {topic: keeper_of(table, group, topic, place_of(table, topic, "spec.ranges")) for topic in topics}
        asked = {
            name: self._connections.positions(self._cluster(name), there, [group])
            for name, there in by_cluster(keepers.values()).items()
        }
        found = await _answers(asked, f"where group {group!r} is")
        return {
            (topic, partition): offset
            for topic, keeper in keepers.items()
            for partition, offset in found[keeper.cluster].get(keeper.upstream_topic, {}).get(group, {}).items()
        }

    def _cluster(self, name: str) -> UpstreamCluster:
        cluster = self._journal.view.state.effective.clusters.get(name)
        if cluster is None:
            raise NotAllowed("CLUSTER_GONE", f"clusters/{name}", f"cluster {name!r} is not registered any more")
        return cluster


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A range about one topic, and its field in the request."""

    asked: replays.ReplayRange
    field: str


def _about(asked: replays.ReplayRange, topic: str) -> replays.ReplayRange:
    said = replays.ReplayRange()
    said.CopyFrom(asked)
    said.topic = topic
    return said


async def _answers(questions: Mapping[str, Coroutine[Any, Any, T]], what: str) -> dict[str, T]:
    """The answer of each cluster; Unavailable when a cluster does not answer."""
    answers, silent = await answers_of(questions)
    for name, error in silent.items():
        raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; it has to say {what}", {"cluster": name}) from error
    return answers
