"""ApiVersions: what this mesh can do, and the one moment in which a client says what it is."""

from services.gateway.requests.clusters.features import finalized_features, supported_features
from services.gateway.requests.plan import MeshView, Plan, Request, Versioned
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def handle(request: Request, mesh: MeshView) -> Plan:
    """No upstream call: the ranges are known when the cluster is, and a dead cluster must not keep clients out."""
    yield from ()
    message = request.decode(ApiVersionsRequest)
    if message.client_software_name:
        mesh.session.software_name = message.client_software_name
        mesh.session.software_version = message.client_software_version
    clusters = [mesh.clusters[name] for name in mesh.table.clusters]
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, low, high) for key, (low, high) in sorted(mesh.served.items())],
        supported_features=supported_features(clusters, request.version),
        finalized_features_epoch=mesh.table.revision + sum(cluster.features_epoch for cluster in clusters),
        finalized_features=finalized_features(clusters),
    )


def unsupported_version(mesh: MeshView) -> Versioned:
    """The answer to a version of ApiVersions that we lack: version 0, error 35 and the one range that the client
    needs to ask again (KIP-511). Every other API in an unknown version closes the connection."""
    low, high = mesh.served[ApiKey.API_VERSIONS]
    return Versioned(
        ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(ApiKey.API_VERSIONS, low, high)]
        ),
        version=0,
    )
