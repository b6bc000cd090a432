"""DescribeQuorum: the controllers of one cluster, the cluster of the node that the client has asked.

The address of the connection names the node, or the client does (KIP-1242). If neither names the node, and the mesh has
several clusters, the request is refused. Controllers and brokers have the numbers of `real_brokers` in the answer, so
the answer shows which cluster it is about; directories and listeners are the cluster's own.
"""

from services.gateway.requests import real_brokers
from services.gateway.requests.clusters.everywhere import ask_each
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import NO_CLUSTER, Verdict, refusal, silence
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

NO_LEADER = -1


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeQuorumRequest)
    asked = mesh.nodes.clusters_of(mesh.session.asked_node)
    if len(asked) != 1:
        return _failed(_undecided(mesh) if asked else NO_CLUSTER)
    [cluster] = asked
    outcome = (yield from ask_each(mesh, {cluster: message}, request.version, DescribeQuorumResponse))[cluster]
    if isinstance(outcome, Unreachable):
        return _failed(silence(outcome))
    for topic in outcome.topics:
        for partition in topic.partitions:
            if partition.leader_id != NO_LEADER:
                partition.leader_id = real_brokers.number_of(Place(cluster, partition.leader_id), mesh)
            for replica in (*partition.current_voters, *partition.observers):
                replica.replica_id = real_brokers.number_of(Place(cluster, replica.replica_id), mesh)
    for node in outcome.nodes:
        node.node_id = real_brokers.number_of(Place(cluster, node.node_id), mesh)
    return outcome


def _undecided(mesh: MeshView) -> Verdict:
    text = (
        "each cluster of the mesh has controllers of its own, and this connection does not tell which are meant: "
        f"ask a node at its own address, or the cluster itself ({real_brokers.nodes_listed(mesh)})"
    )
    return refusal(ErrorCode.INVALID_REQUEST, text)


def _failed(verdict: Verdict) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=verdict.code, error_message=verdict.text)
