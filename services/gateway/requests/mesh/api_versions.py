"""ApiVersions: the versions and features of this mesh.

ApiVersions is also the one request in which a client names its software and its node.

From version 5 on a client names the cluster and the node of its connection (KIP-1242). Those are the mesh's id and a
virtual node; the gateway never sends them to a cluster. A client whose node is gone, or has another address, gets
REBOOTSTRAP_REQUIRED: it forgets all nodes, and begins again at its bootstrap address.
"""

from mesh.routing import FIRST_CLUSTER_NODE_ID
from services.gateway.requests.clusters.features import features_epoch, finalized_features, supported_features
from services.gateway.requests.nodes import NODE_OF_AN_EMPTY_MESH
from services.gateway.requests.plan import MeshView, Plan, Request, Versioned
from services.gateway.requests.uses import shortened
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def handle(request: Request, mesh: MeshView) -> Plan:
    """Makes no upstream call, because a dead cluster must not keep clients out.

    A cluster's version ranges are known once the gateway has reached the cluster.
    """
    yield from ()
    message = request.decode(ApiVersionsRequest)
    if message.client_software_name:
        mesh.session.software_name = shortened(message.client_software_name)
        mesh.session.software_version = shortened(message.client_software_version)
    if message.cluster_id is not None:
        if _is_misled(message, mesh):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        mesh.session.asked_node = message.node_id
    clusters = [mesh.clusters[name] for name in mesh.table.clusters]
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, low, high) for key, (low, high) in sorted(mesh.served.items())],
        supported_features=supported_features(clusters, request.version),
        finalized_features_epoch=features_epoch(mesh.table.revision, clusters),
        finalized_features=finalized_features(clusters),
    )


def _is_misled(message: ApiVersionsRequest, mesh: MeshView) -> bool:
    """Whether the connection was meant for another cluster, or for a node that is not at its address.

    A client's names and properties decide which nodes it is shown, and a rule may have changed since. So every node of
    a cluster is right, whether this client is shown the node now or not.
    """
    nodes = {FIRST_CLUSTER_NODE_ID + cluster.ordinal for cluster in mesh.table.clusters.values()}
    address = mesh.session.asked_node
    elsewhere = address is not None and address != message.node_id
    return message.cluster_id != mesh.mesh_id or elsewhere or message.node_id not in (nodes or {NODE_OF_AN_EMPTY_MESH})


def unsupported_version(mesh: MeshView) -> Versioned:
    """The answer to a version of ApiVersions that the gateway lacks (KIP-511).

    It has version 0, error 35 and the one range that the client needs to ask again. Every other API in an unknown
    version closes the connection.
    """
    low, high = mesh.served[ApiKey.API_VERSIONS]
    return Versioned(
        ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(ApiKey.API_VERSIONS, low, high)]
        ),
        version=0,
    )
