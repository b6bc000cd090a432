"""The numbers of real brokers: ordinal of the cluster times a million, plus the broker's own id.

Clients are shown virtual nodes, and most need no others. An operator who moves replicas, or changes a setting of one
broker and not of its cluster, has to name real brokers. The number of broker 3 on the cluster that is shown as node 102
(its ordinal is 2) is 2000003. DescribeLogDirs lists all brokers as `cluster/broker`; an error about a wrong number
lists the right ones. A number is made of an ordinal that a cluster keeps for life, so numbers are the same on every
gateway.

Most tools assign replicas to the node ids that they are shown. In such an assignment a virtual node stands for one
broker of its cluster, and the gateway chooses the broker.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from services.gateway.requests.placement import Place
from services.gateway.requests.plan import MeshView
from services.gateway.requests.verdicts import Verdict, refusal
from services.gateway.wire.errors import ErrorCode

PER_CLUSTER: Final = 1_000_000
"""More than any broker id in use: Kafka's own go up from 0 or 1001."""


def number_of(place: Place, mesh: MeshView) -> int:
    return mesh.table.clusters[place.cluster].ordinal * PER_CLUSTER + place.broker_id


def place_of(number: int, mesh: MeshView) -> Place | None:
    """The real broker that an operator means, whether that broker exists now or not."""
    ordinal, broker_id = divmod(number, PER_CLUSTER)
    return next((Place(c.name, broker_id) for c in mesh.table.clusters.values() if c.ordinal == ordinal), None)


def place_named(name: str, mesh: MeshView) -> Place | None:
    """As `place_of`, for a name: the number in digits, or `cluster/broker`."""
    if name.isdecimal():
        return place_of(int(name), mesh)
    cluster, _, broker = name.rpartition("/")
    return Place(cluster, int(broker)) if cluster in mesh.table.clusters and broker.isdecimal() else None


def nodes_listed(mesh: MeshView) -> str:
    """The virtual nodes with the clusters that they stand for, for people: `101 = c1, 102 = c2`."""
    shown = ((node.node_id, ", ".join(mesh.nodes.clusters_of(node.node_id))) for node in mesh.nodes.all)
    return ", ".join(f"{node_id} = {clusters}" for node_id, clusters in shown)


def strange(number: int | str, mesh: MeshView) -> str:
    """The sentence for a number that is neither a node of the mesh nor a real broker."""
    return (
        f"node {number} is not of this mesh: {nodes_listed(mesh)} (single brokers: {listed(mesh.table.clusters, mesh)})"
    )


def listed(clusters: Iterable[str], mesh: MeshView) -> str:
    """The numbers of these clusters' brokers, for people."""
    places = [Place(name, broker) for name in clusters for broker in sorted(mesh.clusters[name].brokers)]
    numbers = [f"{number_of(place, mesh)} ({place.cluster}/{place.broker_id})" for place in places]
    return ", ".join(numbers) or "none is known yet"


def own_ids(numbers: Sequence[int], partition: int, owner: str, mesh: MeshView) -> list[int] | Verdict:
    """The brokers' own ids on the cluster that gets a replica of the partition on each; or the reason of the refusal.

    `partition` spreads the brokers that are chosen for virtual nodes.
    """
    named = {
        number: place.broker_id for number in numbers if (place := place_of(number, mesh)) and place.cluster == owner
    }
    brokers = sorted(mesh.clusters[owner].brokers)
    start = partition % max(1, len(brokers))
    free = deque(broker for broker in brokers[start:] + brokers[:start] if broker not in named.values())
    ids = []
    for number in numbers:
        if number in named:
            ids.append(named[number])
        elif number != mesh.nodes.of_cluster(owner):
            right = f"its brokers: {listed([owner], mesh)}; node {mesh.nodes.of_cluster(owner)} stands for any of them"
            text = f"{number} is no broker of cluster {owner}, the topic's owner ({right})"
            return refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        elif not free:
            text = (
                f"cluster {owner} has no broker left for partition {partition} (its brokers: {listed([owner], mesh)})"
            )
            return refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        else:
            ids.append(free.popleft())
    return ids
