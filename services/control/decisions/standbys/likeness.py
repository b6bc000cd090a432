"""Keeps the copies of a standby like their topics: settings, numbers of partitions, and ACLs of the cluster itself."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import structlog

from mesh.routing import UpstreamCluster
from mesh.rpc import acls, events, standbys
from services.control.decisions.standbys.entries import Entries
from services.control.domain.standbys.acls import changes, wanted
from services.control.store.drafts import CONTROL, Caller
from services.control.store.journal import Journal
from services.control.upstream.cluster_acls import (
    AclsHiddenError,
    cluster_acls,
    create_cluster_acls,
    delete_cluster_acls,
)
from services.control.upstream.connections import Connections

LOOK_EVERY_S = 15.0
"""Settings and ACLs change seldom, and a look asks for those of all topics."""
NEVER_FOLLOWED = (
    "cleanup.policy",
    "message.timestamp.type",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
"""A compacted topic, or one with the times of its broker, can't be copied with its offsets. Throttles name brokers."""

log = structlog.get_logger(__name__)


class Likeness:
    """See above."""

    def __init__(self, journal: Journal, connections: Connections, entries: Entries) -> None:
        self._journal = journal
        self._connections = connections
        self._entries = entries
        self._looked: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        """Standby -> why its target did not take the last changes of ACLs."""

    async def follow(self, name: str, groups: Collection[str]) -> None:
        """Changes on the target what differs, unless it looked a short time ago. Raises UnreachableError."""
        now = time.monotonic()
        if now - self._looked.get(name, 0.0) < LOOK_EVERY_S:
            return
        self._looked = {each: at for each, at in self._looked.items() if each in self._journal.view.standbys}
        self._looked[name] = now
        standby = self._journal.view.standbys[name]
        clusters = self._journal.view.state.effective.clusters
        source, target = clusters[standby.spec.source_cluster], clusters[standby.spec.target_cluster]
        copied = [each for each in standby.topics if not each.left]
        if not copied:
            return
        await self._acls(standby, source, target, {each.copy.topic for each in copied}, groups)
        await self._settings(source, target, copied)

    async def _settings(
        self, source: UpstreamCluster, target: UpstreamCluster, copied: Collection[standbys.StandbyTopic]
    ) -> None:
        here, there = await self._connections.topics(source), await self._connections.topics(target)
        pairs = [(each.copy.topic, each.copy.target_topic) for each in copied]
        pairs = [(old, new) for old, new in pairs if old in here and new in there]
        own = await self._connections.topic_settings(source, [old for old, _ in pairs])
        copies = await self._connections.topic_settings(target, [new for _, new in pairs])
        for old, new in pairs:
            if here[old] > there[new]:
                await self._connections.grow_topic(target, new, here[old])
                log.info("a copy has more partitions", topic=new, partitions=here[old])
            if differing := _differing(own[old], copies[new]):
                await self._connections.set_topic_settings(target, new, differing)
                log.info("a copy has other settings", topic=new, settings=sorted(differing))

    async def _acls(
        self,
        standby: standbys.Standby,
        source: UpstreamCluster,
        target: UpstreamCluster,
        topics: Collection[str],
        groups: Collection[str],
    ) -> None:
        create: list[acls.Acl] = []
        delete: list[acls.Acl] = []
        made, problem = list(standby.acls), ""
        try:
            here = await self._connections.ask(source, cluster_acls)
            there = await self._connections.ask(target, cluster_acls)
        except AclsHiddenError as error:
            problem = str(error)
        else:
            if here is not None and there is not None:
                right, problem = wanted(here, topics, groups)
                create, delete, made = changes(standby.acls, right, there)
            elif here:
                problem = f"{target.name!r} has no authorizer"
        problem = problem or self._refused.get(standby.name, "")
        said = events.StandbyAclsSet(name=standby.name, acls=made, problem=problem)
        if (made, problem) != (list(standby.acls), standby.acl_problem):  # first: what it makes, it can take back
            await self._entries.append(standby.name, [said], Caller(CONTROL))
        try:
            await self._connections.ask(target, lambda client: create_cluster_acls(client, create))
            await self._connections.ask(target, lambda client: delete_cluster_acls(client, delete))
        except AclsHiddenError as error:
            self._refused[standby.name] = str(error)
        else:
            self._refused.pop(standby.name, None)


def _differing(own: Mapping[str, str], copy: Mapping[str, str]) -> dict[str, str | None]:
    """The settings to make on the copy; None: to take back, so that the default of its cluster counts."""
    found: dict[str, str | None] = {name: value for name, value in own.items() if copy.get(name) != value}
    found |= dict.fromkeys(copy.keys() - own.keys())
    return {name: value for name, value in found.items() if name not in NEVER_FOLLOWED}
