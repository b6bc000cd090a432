"""Clusters have ACLs of their own: this part says where they forbid the mesh what the mesh allows a client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from mesh.acls import Operation, ResourceType
from mesh.connection_security import connection_properties
from mesh.routing import RoutingTable, UpstreamCluster
from mesh.rpc import acls
from mesh.secret_references import REFERENCE
from services.control.domain.errors import InvalidField
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

ASKED: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
"""Kafka describes what it allows on these alone."""


class ClusterRights:
    """Asks clusters what they allow the mesh."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self._journal = journal
        self._connections = connections

    async def found(self, operation: Operation, kind: ResourceType, name: str) -> list[acls.ClusterVerdict]:
        """The clusters that forbid the operation, and those where this is not known; sorted by name."""
        table = self._journal.view.state.effective
        asked = [self._of(cluster, operation, kind, there) for cluster, there in _places(table, kind, name)]
        return sorted((each for each in await asyncio.gather(*asked) if each), key=lambda each: each.cluster_name)

    async def _of(
        self, cluster: UpstreamCluster, operation: Operation, kind: ResourceType, name: str
    ) -> acls.ClusterVerdict | None:
        def verdict(text: str, *, forbids: bool = False) -> acls.ClusterVerdict:
            return acls.ClusterVerdict(cluster_name=cluster.name, forbids=forbids, explanation=text)

        what = "the cluster" if kind is ResourceType.CLUSTER else f"{kind.word} {name!r}"
        if cluster.identity is not None:
            return verdict(
                f"at cluster {cluster.name!r} clients have identities of their own "
                f"({cluster.identity.mode.value}): its ACLs about these count, too, and control can't ask for them"
            )
        try:
            allowed = await self._connections.own_operations(cluster, kind, name)
        except (UnreachableError, InvalidField) as error:
            return verdict(f"it is not known whether cluster {cluster.name!r} forbids it: {error}")
        if allowed is None or operation in allowed:
            return None
        on = "on" if kind is ResourceType.CLUSTER else ""
        text = " ".join(filter(None, (operation.word.capitalize(), on, what)))
        return verdict(f"the cluster {cluster.name!r} forbids {text} to {_own_principal(cluster)}", forbids=True)


def _places(table: RoutingTable, kind: ResourceType, name: str) -> Iterator[tuple[UpstreamCluster, str]]:
    """The clusters that the resource may be on, with its name there."""
    if kind not in ASKED:
        return
    route = table.route(name) if kind is ResourceType.TOPIC else None
    rule = table.group_rule(name) if kind is ResourceType.GROUP else None
    if route is not None:
        yield table.clusters[route.cluster], route.upstream_topic
    elif rule is not None:
        yield table.clusters[rule.target_cluster], name
    elif kind is not ResourceType.TOPIC:
        yield from ((each, name) for each in table.clusters.values())


def _own_principal(cluster: UpstreamCluster) -> str:
    """ "the mesh's own principal User:mesh"; without the name if control does not know it."""
    properties = connection_properties(cluster.producer_config, cluster.consumer_config)
    name = properties.get("sasl.username", properties.get("sasl.kerberos.principal", ""))
    known = bool(name) and not REFERENCE.search(name)
    return f"the mesh's own principal{f' User:{name}' if known else ''}"
