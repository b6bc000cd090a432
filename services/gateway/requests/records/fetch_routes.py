"""Where Fetch of a topic goes, as long as table and metadata allow it to be forwarded without a plan."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mesh.routing import Route as TableRoute
from mesh.routing import RoutingTable
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.records.stitched import Stretch, present_parts
from services.gateway.requests.topic_ids import known_name, mesh_topic_id
from services.gateway.requests.topic_names import KnownCluster
from services.gateway.requests.traffic.tally import Tally
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.primitives import write_compact_string, write_string

if TYPE_CHECKING:
    from mesh.traffic.receipts import Sent
    from services.gateway.requests.memory import Memory


class Route:
    """One topic's route. It counts as long as `edition` is that of the leaders of its cluster."""

    __slots__ = (
        "cluster",
        "compact",
        "edition",
        "highest",
        "knowledge",
        "leaders",
        "lowest",
        "name",
        "plain",
        "presents",
        "receipts",
        "rule_id",
        "tally",
        "topic_id",
    )

    def __init__(
        self,
        name: str,
        topic_id: bytes,
        route: TableRoute,
        knowledge: ClusterKnowledge,
        leaders: tuple[int | None, ...],
        versions: tuple[int, int],
        presents: tuple[Stretch | None, ...] = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        """The mesh's own id of the topic."""
        compact, plain = bytearray(), bytearray()
        write_compact_string(compact, name, "Fetch.topic")
        write_string(plain, name, "Fetch.topic")
        self.compact, self.plain = bytes(compact), bytes(plain)
        """The name as a request has it, from version 12 on and before."""
        self.cluster, self.rule_id = route.cluster, route.rule.rule_id
        self.knowledge = knowledge
        self.edition = knowledge.leaders_edition
        self.leaders = leaders
        self.lowest, self.highest = versions
        """The versions of Fetch that the cluster speaks."""
        self.presents = presents
        """The present part of each partition. Empty: clients see the offsets of the cluster."""
        self.tally: Tally | None = None
        """That of the topic in the traffic of its client, until it has ended."""
        self.receipts: tuple[int, dict[int, Sent]] = (-1, {})
        """The interval, and by partition what the client was sent in this interval."""

    def present(self, partition: int) -> Stretch | None:
        """The present part of a partition; None: clients see the offsets of the cluster."""
        return self.presents[partition] if 0 <= partition < len(self.presents) else None


def route_to(
    key: str | bytes, table: RoutingTable, known: Mapping[str, KnownCluster], mesh_id: str, memory: "Memory", now: float
) -> Route | None:
    """The route of the topic with this name or id; None if Fetch of it needs a plan."""
    name = key if isinstance(key, str) else known_name(key, mesh_id, memory, known.values(), now)
    route = None if name is None else table.route(name)
    if name is None or route is None or route.cluster not in known or known[route.cluster].naming:
        return None
    if memory.protection.rules_for(name):
        return None
    presents = present_parts(name, route, memory)
    if any(part is not None and (part.cluster, part.topic) != (route.cluster, name) for part in presents):
        return None
    knowledge = known[route.cluster].by_own_names
    topic, versions = knowledge.topics.get(name), knowledge.versions.get(ApiKey.FETCH)
    if topic is None or name in knowledge.stale or versions is None:
        return None
    return Route(name, mesh_topic_id(mesh_id, name), route, knowledge, topic.leaders, versions, presents)
