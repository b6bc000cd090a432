"""The retention of stitched logs: control gives the topics of old parts the settings by which the whole log retains."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence

import structlog
from prometheus_client import Counter

from mesh.routing import Place, UpstreamCluster
from mesh.stitches import LogPart
from services.control.decisions.leading import looks
from services.control.domain.stitches.logs import in_force, log_of, logs_of
from services.control.domain.stitches.retention import (
    RETENTION,
    bounds_size,
    old_places,
    place_of,
    settings_of_old,
)
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError
from services.control.upstream.log_sizes import partition_sizes

LOOK_EVERY = 15.0
"""Seconds between two looks: brokers look for old records every 5 minutes."""

log = structlog.get_logger(__name__)
set_total = Counter(
    "kafka_mesh_control_part_retention_changes_total", "Changes of the retention of old parts' topics.", ["outcome"]
)


class Retaining:
    """Asks the clusters of stitched logs, and changes what differs. Nothing is kept: each look compares anew."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self._journal = journal
        self._connections = connections
        self._away: dict[str, str] = {}
        """Clusters that did not answer at this look: the next log does not wait for them."""
        self._troubles: dict[str, str] = {}
        """Topic -> the reason that control has logged."""
        self._turn = asyncio.Lock()
        """One change at a time: a change of a look must not come behind that of a move."""

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            self._away.clear()
            logs = logs_of(self._journal.view.state.effective)
            self._troubles = {topic: reason for topic, reason in self._troubles.items() if topic in logs}
            for topic in logs:
                try:
                    await self.look(topic)
                except (TimeoutError, UnreachableError) as error:
                    self._tell(topic, str(error))
                else:
                    self._troubles.pop(topic, None)

    async def look(self, topic: str) -> None:
        """Gives the old parts of a log what they need. A topic that moves just now waits. Raises UnreachableError."""
        parts = self._parts(topic)
        if len(parts) < 2 or self._moves(topic):
            return
        settings = await self._settings(place_of(parts[-1]))
        if settings is None:
            return
        sizes = await self._sizes(parts) if bounds_size(settings) else {}
        for place, needed in settings_of_old(parts, settings, sizes).items():
            if place.cluster in self._journal.view.state.effective.clusters:
                await self._give(topic, place, needed)

    async def give_back(self, topic: str, place: Place) -> None:
        """Gives a place that loses its only part the topic's own settings. Raises UnreachableError."""
        parts = self._parts(topic)
        if [place_of(each) for each in parts].count(place) != 1 or place not in old_places(parts):
            return
        settings = await self._settings(place_of(parts[-1]))
        if settings is not None:
            await self._give(topic, place, settings)

    async def come_back(self, topic: str, place: Place, settings: Mapping[str, str]) -> None:
        """Gives an old part's place, to which the topic moves, the topic's own settings. Raises UnreachableError."""
        if place in old_places(self._parts(topic)):
            self._away.clear()
            async with self._turn:
                await self._set(topic, place, settings)

    async def release(self, topic: str, places: Iterable[Place], present: Place) -> None:
        """Gives the places of all parts the topic's own settings: its log is whole at `present`, and they are old logs.

        A place whose cluster is away keeps what it has: nobody reads there any more.
        """
        self._away.clear()
        try:
            settings = await self._settings(present)
        except (TimeoutError, UnreachableError) as error:
            self._tell(topic, str(error))
            return
        for place in dict.fromkeys(places):
            if settings is not None and place != present:
                with contextlib.suppress(TimeoutError, UnreachableError):
                    async with self._turn:
                        await self._set(topic, place, settings)

    async def _give(self, topic: str, place: Place, needed: Mapping[str, str]) -> None:
        async with self._turn:
            if not self._moves(topic):
                await self._set(topic, place, needed)

    async def _set(self, topic: str, place: Place, needed: Mapping[str, str]) -> None:
        has = await self._settings(place)
        if has is None:
            return
        wrong = {name: value for name, value in needed.items() if has[name] != value}
        if not wrong:
            return
        try:
            await self._connections.set_topic_settings(self._cluster(place), place.upstream_topic, wrong)
        except UnreachableError as error:
            set_total.labels("failed").inc()
            raise UnreachableError(f"topic {place.upstream_topic!r} needs {wrong}: {error}") from error
        set_total.labels("set").inc()
        log.info("control sets the retention of a part", topic=topic, cluster=place.cluster, settings=wrong)

    async def _settings(self, place: Place) -> Mapping[str, str] | None:
        """None: the cluster has no such topic, or does not tell its retention."""
        cluster = self._cluster(place)
        try:
            if not await self._connections.partitions_of(cluster, place.upstream_topic):
                return None
            found = await self._connections.effective_settings(cluster, [place.upstream_topic], RETENTION)
        except UnreachableError as error:
            self._away[cluster.name] = str(error)
            raise
        settings = found.get(place.upstream_topic, {})
        return settings if settings.keys() == set(RETENTION) else None

    async def _sizes(self, parts: Sequence[LogPart]) -> dict[Place, Mapping[int, int]]:
        """By place, for all parts behind the oldest. A part whose cluster is away is absent, and counts as nothing."""
        found: dict[Place, Mapping[int, int]] = {}
        for place in dict.fromkeys(map(place_of, parts[1:])):
            try:
                cluster = self._cluster(place)
                wanted = {place.upstream_topic: len(parts[0].shifts)}
                found[place] = (await partition_sizes(cluster, wanted)).get(place.upstream_topic, {})
            except UnreachableError as error:
                log.debug("the size of a part is not known", cluster=place.cluster, reason=str(error))
        return found

    def _cluster(self, place: Place) -> UpstreamCluster:
        cluster = self._journal.view.state.effective.clusters.get(place.cluster)
        if cluster is None or place.cluster in self._away:
            reason = self._away.get(place.cluster, f"cluster {place.cluster!r} is not registered any more")
            raise UnreachableError(reason)
        return cluster

    def _parts(self, topic: str) -> tuple[LogPart, ...]:
        """None while the log is a fork with a past: that is the log of another topic, whose retention holds there."""
        table = self._journal.view.state.effective
        route = table.route(topic)
        parts = () if route is None else in_force(log_of(table, topic), route.stay)
        return () if any(part.is_past for part in parts) else parts

    def _moves(self, topic: str) -> bool:
        return any(each.spec.topic == topic for each in self._journal.view.topic_moves.open.values())

    def _tell(self, topic: str, reason: str) -> None:
        if self._troubles.get(topic) != reason:
            self._troubles[topic] = reason
            log.warning("the retention of a stitched log is not known or can't be set", topic=topic, reason=reason)
