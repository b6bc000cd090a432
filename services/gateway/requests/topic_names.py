"""What topics are called on one cluster, by the rules in force: clients' names outwards, the cluster's own inwards."""

from mesh.routing import RoutingTable
from services.gateway.requests.topic_ids import is_internal


class TopicNames:
    """Both directions for one cluster. Without rules that rename, every topic is called the same on both sides."""

    __slots__ = ("_cluster", "_table", "renaming")

    def __init__(self, cluster: str, table: RoutingTable) -> None:
        self._cluster = cluster
        self._table = table
        self.renaming = table.renames(cluster)
        """Whether any name may be another one."""

    def upstream(self, topic: str) -> str:
        """What the cluster calls it: also a topic that has left it, whose last writes somebody asks for.

        What is a cluster's own business (`__transaction_state`) is called the same everywhere.
        """
        route = None if is_internal(topic) else self._table.route(topic)
        if route is None:
            return topic
        if route.cluster == self._cluster:
            return route.upstream_topic
        if route.before is not None and route.before.cluster == self._cluster:
            return route.before.upstream_topic
        return topic

    def taken_by(self, topic: str) -> str | None:
        """The other topic that has this one's name here, where this one neither lives nor lived last. Then it can't be
        spoken of here, as a group with shadow topics does: it would be taken for the other one."""
        if is_internal(topic):
            return None
        route = self._table.route(topic)
        if route is not None and self._cluster in (route.cluster, route.before and route.before.cluster):
            return None
        other = self._table.virtual_topic(self._cluster, topic)
        return None if other == topic else other

    def virtual(self, upstream_topic: str) -> str | None:
        """What clients call it; None for a topic that no client's name leads to.

        One that is called the same above is not for here to hide: it may be the shadow of a topic that lives elsewhere.
        """
        name = self._table.virtual_topic(self._cluster, upstream_topic)
        return upstream_topic if name is None and self.upstream(upstream_topic) == upstream_topic else name
