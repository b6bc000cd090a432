"""Where Produce to a topic goes, as long as table, metadata and seams allow it to be forwarded without a plan."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mesh.routing import Route as TableRoute
from mesh.routing import RoutingTable
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.records.acknowledged import AcknowledgedLog
from services.gateway.requests.records.seams import seam_of
from services.gateway.requests.records.stitched import present_parts
from services.gateway.requests.topic_ids import known_name
from services.gateway.requests.topic_names import KnownCluster
from services.gateway.requests.traffic.tally import Tally
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.primitives import write_compact_string
from services.gateway.wire.scanner import ProduceTopic

if TYPE_CHECKING:
    from services.gateway.requests.memory import Memory


class Route:
    """One topic's route. It counts as long as `edition` is that of the leaders of its cluster."""

    __slots__ = (
        "acknowledged",
        "before",
        "called",
        "cluster",
        "edition",
        "highest",
        "is_single",
        "knowledge",
        "leaders",
        "lowest",
        "name",
        "route",
        "shifts",
        "tally",
        "written",
    )

    def __init__(
        self,
        name: str,
        route: TableRoute,
        knowledge: ClusterKnowledge,
        leaders: tuple[int | None, ...],
        is_single: bool,
        versions: tuple[int, int],
        shifts: tuple[int, ...] = (),
        acknowledged: AcknowledgedLog | None = None,
    ) -> None:
        self.name = name
        self.called = name.encode()
        self.written = compact(name)
        """The name as the cluster reads it, in the place of an id."""
        self.route = route
        self.cluster, self.before = route.cluster, route.before
        self.knowledge = knowledge
        self.edition = knowledge.leaders_edition
        self.leaders = leaders
        self.is_single = is_single
        """Whether all partitions have a single replica, so that the broker waits for no other one."""
        self.lowest, self.highest = versions
        """The versions of Produce that the cluster speaks."""
        self.shifts = shifts
        """By partition: added to offsets of the cluster, it gives those that clients see. Empty: both are the same."""
        self.acknowledged = acknowledged
        """Notes how far the topic is acknowledged; None: the topic is not under standby."""
        self.tally: Tally | None = None
        """That of the topic in the traffic of its client, until it has ended."""

    def is_settled(self, topic: ProduceTopic, memory: "Memory", now: float) -> bool:
        """Whether no producer of these partitions can repeat a batch that the topic's last cluster has."""
        before = self.before
        if before is None:
            return True
        if memory.doubts or memory.passages:
            return False
        return all(
            memory.seams.is_closed(seam_of(self.name, part.partition, self.route, before), now)
            for part in topic.partitions
        )


def compact(name: str) -> bytes:
    """The name as flexible versions have it."""
    written = bytearray()
    write_compact_string(written, name, "Produce.topic")
    return bytes(written)


def route_to(
    key: str | bytes, table: RoutingTable, known: Mapping[str, KnownCluster], mesh_id: str, memory: "Memory", now: float
) -> Route | None:
    """The route of the topic with this name or id; None if Produce to it needs a plan."""
    name = key if isinstance(key, str) else known_name(key, mesh_id, memory, known.values(), now)
    route = None if name is None else table.route(name)
    if name is None or route is None or route.visit != 1 or route.upstream_topic != name:
        return None
    if (memory.audit is not None and name in memory.audit.topics) or route.cluster not in known:
        return None
    if name in memory.rehearsals:
        return None
    if memory.validation.rules_for(name) or memory.protection.rules_for(name):
        return None
    knowledge = known[route.cluster].by_own_names
    topic, versions = knowledge.topics.get(name), knowledge.versions.get(ApiKey.PRODUCE)
    if topic is None or name in knowledge.stale or versions is None:
        return None
    is_single = all(topic.is_single(number) for number in range(len(topic.leaders)))
    shifts = tuple(0 if part is None else part.shift for part in present_parts(name, route, memory))
    acknowledged = memory.acknowledged.of(name, route.cluster)
    return Route(name, route, knowledge, topic.leaders, is_single, versions, shifts, acknowledged)
