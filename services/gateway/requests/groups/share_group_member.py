"""ShareGroupHeartbeat (KIP-932): to the coordinator on the group's home cluster, which assigns the partitions.

The cluster that keeps a share group's state hands out its records, so the group reads topics of its home alone. A
subscription to topics of other clusters is refused with a sentence.
"""

from services.gateway.requests.groups.group_heartbeat import beat, homeless, refused, unreached
from services.gateway.requests.groups.group_home import find_home
from services.gateway.requests.groups.group_subscription import foreign_topics
from services.gateway.requests.groups.group_topic_ids import shown
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

WAY_OUT = "a share group reads topics of one cluster"


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ShareGroupHeartbeatRequest)
    group_id, topics = message.group_id, message.subscribed_topic_names or []
    mesh.session.uses.groups.note(group_id)
    home = yield from find_home(group_id, mesh, topics, near_topics=True)
    if home is None:
        return homeless(message, ShareGroupHeartbeatResponse)
    refusal = foreign_topics(group_id, topics, home, WAY_OUT, mesh)
    if refusal is not None:
        return refused(message, ShareGroupHeartbeatResponse, ErrorCode.INVALID_REQUEST, refusal)
    answer = yield from beat(message, home, request.version, ShareGroupHeartbeatResponse, mesh)
    if answer.assignment is not None:
        given = yield from shown(answer.assignment.topic_partitions, home, mesh)
        if isinstance(given, Unreachable):
            return unreached(message, ShareGroupHeartbeatResponse, given)
        answer.assignment.topic_partitions = given
    return answer
