"""Before a move: control asks both clusters whether the topic can move, and creates it on the target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mesh.routing import Place, RoutingTable, UpstreamCluster
from mesh.routing.policies import STITCH_POLICY
from mesh.rpc import topic_moves
from services.control.decisions.stitches.retaining import Retaining
from services.control.decisions.topic_moves.earlier_copies import refuse_other_records
from services.control.domain.errors import NotAllowed, Unavailable
from services.control.domain.stitches.logs import check_room, check_target, in_force, log_of
from services.control.domain.stitches.retention import RETENTION, place_of
from services.control.domain.topic_moves.moves import Side, check_sides
from services.control.domain.topic_moves.two_cuts import COPY, STITCH, STITCH_THEN_COPY, check_fits, parts_of
from services.control.domain.topic_moves.users_of_topics import (
    IN_PARTS,
    TOO_OLD,
    refuse_replays,
    refuse_shares,
    refuse_users,
)
from services.control.domain.view import MeshView
from services.control.store.journal import is_rehearsal
from services.control.upstream.connections import Connections, UnreachableError
from services.control.upstream.newer_groups import newer_groups
from services.control.upstream.share_starts import keeps_share_starts

SETTINGS = ("cleanup.policy", "message.timestamp.type", *RETENTION)


class Preparation:
    """Checks the two sides of moves."""

    def __init__(
        self,
        connections: Connections,
        too_old: Callable[[int], Sequence[tuple[str, str, str]]],
        retaining: Retaining,
    ) -> None:
        """`too_old`: the kind, the name and the version of each member that does not read a format of tables."""
        self._connections = connections
        self._retaining = retaining
        self._too_old = too_old

    async def prepare(
        self, spec: topic_moves.TopicMoveSpec, view: MeshView, way: tuple[Place, Place], *, tail: bool = False
    ) -> None:
        """Creates the topic on its target; refused if the topic can't move there. `way`: source and target.

        `tail`: the target is the tail of a move that stitches first.
        """
        table = view.state.effective
        stitched = spec.kind == STITCH or tail
        refuse_users(spec.topic, way, view.record_rules.values())
        if spec.kind != COPY:
            self.check_understood()
            refuse_replays(spec.topic, way, view.replays.open.values())
        try:
            here, there = await asyncio.gather(*(self.side(table, place) for place in way))
            check_sides(spec.topic, here, there, stitched=stitched)
            if stitched:
                await self._check_log(spec.topic, table, here, there)
            elif spec.kind == STITCH_THEN_COPY:
                await self._check_both(spec.topic, table, here, there)
            if is_rehearsal.get():
                return
            if not there.partitions:
                await self.create(table, here, there, stitched=stitched)
                check_sides(spec.topic, here, await self.side(table, there.place), stitched=stitched)
            elif stitched:
                await self._retaining.come_back(spec.topic, there.place, _retention(here))
        except UnreachableError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; the move does not begin") from None

    async def release(self, move: topic_moves.MoveWithRecords) -> None:
        """Gives the topics of a log's parts, which is whole again, the settings of the topic."""
        present = Place(move.copy.target_cluster, move.copy.target_topic)
        await self._retaining.release(move.spec.topic, map(place_of, parts_of(move)), present)

    async def _check_log(self, topic: str, table: RoutingTable, here: Side, there: Side) -> None:
        check_room(table, topic, here.partitions)
        route = table.route(topic)
        parts = () if route is None else in_force(log_of(table, topic), route.stay)
        cluster, name = table.clusters[there.place.cluster], there.place.upstream_topic
        if there.partitions:
            logs = await self._connections.log_ranges(cluster, {name: there.partitions})
            check_target(topic, parts, there.place, logs[name])
        if not await keeps_share_starts(cluster):
            await self._check_shares(topic, table, here.place, TOO_OLD)

    async def _check_both(self, topic: str, table: RoutingTable, here: Side, there: Side) -> None:
        """`there`: the place of the copy."""
        check_fits(table, topic, there.place)
        if here.place.cluster != there.place.cluster:
            check_room(table, topic, here.partitions)
        route = table.route(topic)
        parts = () if route is None else in_force(log_of(table, topic), route.stay)
        if there.partitions:
            await refuse_other_records(topic, table, here.place, there.place, parts)
        await asyncio.gather(*(self.check_shares(topic, table, side.place) for side in (here, there)))

    async def check_shares(self, topic: str, table: RoutingTable, place: Place) -> None:
        """Refuses a topic that share groups read at this place, because its whole log is to be copied."""
        await self._check_shares(topic, table, place, IN_PARTS)

    async def _check_shares(self, topic: str, table: RoutingTable, place: Place, why: str) -> None:
        groups = await newer_groups(table.clusters[place.cluster])
        read = {name: {each for each, _ in group.share_lags} for name, group in groups.items()}
        refuse_shares(topic, place, read, why)

    async def create(self, table: RoutingTable, here: Side, there: Side, *, stitched: bool) -> None:
        """Creates the topic `there`, with the partitions and the settings of the one `here`."""
        source, target = (table.clusters[side.place.cluster] for side in (here, there))
        settings = (await self._connections.topic_settings(source, [here.place.upstream_topic]))[
            here.place.upstream_topic
        ]
        if stitched:  # its retention holds over all parts, so the default of another cluster must not shorten it
            settings = {**settings, **_retention(here)}
        await self._connections.create_topics(target, {there.place.upstream_topic: (here.partitions, settings)})

    async def side(self, table: RoutingTable, place: Place) -> Side:
        """The topic as its cluster has it now."""
        cluster: UpstreamCluster = table.clusters[place.cluster]
        topic = place.upstream_topic
        partitions = await self._connections.partitions_of(cluster, topic) or 0
        settings = await self._connections.effective_settings(cluster, [topic], SETTINGS) if partitions else {}
        return Side(place, partitions, settings.get(topic, {}))

    def check_understood(self, table_format: int = STITCH_POLICY.table_format) -> None:
        """A member of an older release passes over the parts: its clients would see the offsets of clusters."""
        for kind, name, version in self._too_old(table_format):
            raise NotAllowed(
                "ROUTER_TOO_OLD" if kind == "router" else "GATEWAY_TOO_OLD",
                f"members/{name}",
                f"{kind} {name!r} is of release {version or 'unknown'}, which passes over the parts of a stitched log: "
                "clients would see wrong offsets. Upgrade it, or stop it, then retry",
            )


def _retention(of: Side) -> dict[str, str]:
    return {name: of.settings[name] for name in RETENTION if name in of.settings}
