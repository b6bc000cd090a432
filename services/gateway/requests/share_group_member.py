"""ShareGroupHeartbeat (KIP-932): to the coordinator on the group's home cluster, which assigns the partitions.

The records of a share group are handed out by the cluster that keeps its state: it reads topics of its home alone. A
subscription to others is refused with a sentence.
"""

from services.gateway.requests.group_home import find_home
from services.gateway.requests.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.group_subscription import foreign_topics
from services.gateway.requests.group_topic_ids import shown
from services.gateway.requests.plan import Call, Coordinator, Forget, Lane, MeshView, Plan, Request, Unreachable
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

WAY_OUT = "a share group reads topics of one cluster"


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ShareGroupHeartbeatRequest)
    group_id, topics = message.group_id, message.subscribed_topic_names or []
    home = yield from find_home(group_id, mesh, topics, near_topics=True)
    if home is None:
        return _refused(message, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no cluster knows yet where the group lives")
    refusal = foreign_topics(group_id, topics, home, WAY_OUT, mesh)
    if refusal is not None:
        return _refused(message, ErrorCode.INVALID_REQUEST, refusal)
    coordinator = Coordinator(group_id)
    call = Call(home, message, request.version, coordinator, Lane.CLIENT)
    [outcome] = yield from ask_fitting(mesh, [call], ShareGroupHeartbeatResponse)
    if isinstance(outcome, Unreachable):
        yield Forget(home, coordinator)
        code = ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _refused(message, code, f"group {group_id} lives on cluster {home}: {outcome.reason}")
    if outcome.error_code in COORDINATOR_MOVED:
        yield Forget(home, coordinator)
    if outcome.assignment is not None:
        given = outcome.assignment.topic_partitions
        outcome.assignment.topic_partitions = yield from shown(given, home, mesh)
    return outcome


def _refused(message: ShareGroupHeartbeatRequest, code: ErrorCode, text: str) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=code, error_message=text, member_id=message.member_id, member_epoch=message.member_epoch
    )
