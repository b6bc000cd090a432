"""DescribeCluster: the mesh as one cluster, with its virtual nodes and its own id."""

from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
"""The endpoint type that a broker's port serves (KIP-919)."""


def handle(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    message = request.decode(DescribeClusterRequest)
    if message.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=worded(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "this is an endpoint of brokers; the mesh has no controller endpoint",
            ),
            endpoint_type=BROKERS,
        )
    return DescribeClusterResponse(
        cluster_id=mesh.mesh_id,
        controller_id=mesh.nodes.controller,
        brokers=[DescribeClusterBroker(broker_id=n.node_id, host=n.host, port=n.port) for n in mesh.nodes.all],
    )
