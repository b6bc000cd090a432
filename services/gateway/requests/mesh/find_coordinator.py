"""FindCoordinator: this gateway is every client's coordinator.

A group's real home is chosen when a member says what it subscribes to (`group_home`). The client needs to know only
where to send its requests, and that is here.
"""

from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.requests.verdicts import DONE, Verdict, refusal
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION = 0, 1
BATCHED_SINCE = 4


def handle(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    message = request.decode(FindCoordinatorRequest)
    node = mesh.nodes.all[0]
    error, reason = _refusal(message.key_type, mesh)
    if error:
        node_id, host, port = -1, "", -1
    else:
        node_id, host, port = node.node_id, node.host, node.port
    if request.version < BATCHED_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=reason, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=reason)
            for key in message.coordinator_keys
        ]
    )


def _refusal(key_type: int, mesh: MeshView) -> Verdict:
    if key_type not in (GROUP, TRANSACTION):
        return refusal(ErrorCode.INVALID_REQUEST, f"coordinators of key type {key_type} are not served by this gateway")
    if not mesh.table.clusters:
        return refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no cluster is registered with the mesh yet")
    return DONE
