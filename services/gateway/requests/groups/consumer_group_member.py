"""ConsumerGroupHeartbeat (KIP-848): to the coordinator on the group's home cluster, which assigns the partitions.

Theory of operation
1. A group's home is the cluster of its topics. If a group spans clusters, its home gets shadows of the foreign topics
   (`shadow_topics`). If a rule about the group forbids shadows, or the home does not make them, the gateway refuses the
   member with a sentence. A member never gets an assignment that silently lacks topics.
   An obstacle that passes delays a member that joins. A member that belongs to the group already sends its heartbeat
   on: without heartbeats the coordinator would fence this member. The next comparison makes the shadows.
2. Subscriptions and assignments pass as they are; only topic ids differ, the mesh's for clients, the home's for its
   coordinator.
3. The gateway checks a member's subscription when the member sends it: in its first heartbeat, and whenever it changes.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import structlog

from services.gateway.requests.groups.group_heartbeat import beat, homeless, refused, unreached
from services.gateway.requests.groups.group_home import find_home, may_have_shadows
from services.gateway.requests.groups.group_subscription import lacking, matching_topics, refusal, renamed_topics
from services.gateway.requests.groups.group_topic_ids import ids_at, shown
from services.gateway.requests.groups.shadow_topics import Fault, keep_shadows, see_to_shadows
from services.gateway.requests.plan import Command, Gather, MeshView, Plan, Request, Unreachable
from services.gateway.requests.traffic.calls import named_group
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

LIBRDKAFKA = ("librdkafka", "confluent-kafka-")
"""The beginnings of the software names of the librdkafka family."""
RETRY_PAUSE_S = 1.0
"""Seconds before each refusal to librdkafka, because it asks again at once."""
JOINS = 0
"""The member epoch of a member that joins; lower ones are those of members that leave."""
WAY_OUT = "use group.protocol=classic, or a rule about the group with shadow_topics"

log = structlog.get_logger(__name__)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ConsumerGroupHeartbeatRequest)
    group_id = message.group_id
    named_group(mesh, group_id)
    matching = yield from _matching(message, mesh)
    renamed = renamed_topics(group_id, matching, mesh)
    if renamed is not None:
        return (yield from _refused_for_good(message, renamed, mesh))
    topics = list(dict.fromkeys([*(message.subscribed_topic_names or ()), *matching]))
    home = yield from find_home(group_id, mesh, topics, near_topics=True)
    if home is None:
        return homeless(message, ConsumerGroupHeartbeatResponse)
    leaves = message.member_epoch < JOINS
    obstacle = None if leaves else (yield from _see_to(group_id, topics, home, mesh))
    if obstacle is not None and not obstacle.passing:
        return (yield from _refused_for_good(message, obstacle.reason, mesh))
    if obstacle is not None and message.member_epoch == JOINS:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return refused(message, ConsumerGroupHeartbeatResponse, code, obstacle.reason)
    if obstacle is None and message.member_epoch > JOINS:
        yield from see_to_shadows(group_id, home, mesh)
    message.topic_partitions = yield from _as_the_home_names_them(message.topic_partitions, home, mesh)
    answer = yield from beat(message, home, request.version, ConsumerGroupHeartbeatResponse, mesh)
    if answer.assignment is not None:
        given = yield from shown(answer.assignment.topic_partitions, home, mesh)
        if isinstance(given, Unreachable):
            return unreached(message, ConsumerGroupHeartbeatResponse, given)
        answer.assignment.topic_partitions = given
    return answer


def _matching(message: ConsumerGroupHeartbeatRequest, mesh: MeshView) -> Generator[Command, Any, list[str]]:
    """Topics that match the member's expression.

    Empty, without a call, if the expression can match topics of one cluster only, under the cluster's own names.
    """
    clusters = mesh.table.clusters
    if not message.subscribed_topic_regex or (len(clusters) <= 1 and not any(map(mesh.table.renames, clusters))):
        return []
    return (yield from matching_topics(message.subscribed_topic_regex, mesh))


def _see_to(group_id: str, topics: list[str], home: str, mesh: MeshView) -> Generator[Command, Any, Fault | None]:
    """Has the home serve these topics; returns the obstacle, if there is one."""
    lacks = yield from lacking(topics, home, mesh)
    if isinstance(lacks, Unreachable):
        return Fault(f"cluster {lacks.cluster} can't be reached: {lacks.reason}", passing=True)
    if not may_have_shadows(group_id, mesh):
        return Fault(refusal(group_id, home, lacks, WAY_OUT), passing=False) if lacks else None
    if ApiKey.CONSUMER_GROUP_HEARTBEAT not in mesh.clusters[home].versions:
        return None  # the home says that it has no such groups: shadows would be of no use
    fault = yield from keep_shadows(home, topics, lacks, mesh)
    if fault is not None:
        way_out = f"use group.protocol=classic, because {fault.reason}"
        return replace(fault, reason=refusal(group_id, home, lacks, way_out))
    return None


def _as_the_home_names_them(
    owned: list[TopicPartitions] | None, home: str, mesh: MeshView
) -> Generator[Command, Any, list[TopicPartitions] | None]:
    """The partitions that the member owns, by the home's topic ids; topics that the home lacks are left out."""
    if not owned:
        return owned
    ids = yield from ids_at(home, [each.topic_id for each in owned], mesh)
    return [replace(each, topic_id=ids[each.topic_id]) for each in owned if each.topic_id in ids]


def _refused_for_good(
    message: ConsumerGroupHeartbeatRequest, text: str, mesh: MeshView
) -> Generator[Command, Any, ConsumerGroupHeartbeatResponse]:
    """Refuses with the error that makes the client show the sentence to its application.

    INVALID_REQUEST ends the consumers of Java and librdkafka alike, but librdkafka keeps the sentence to itself. The
    only error whose sentence librdkafka shows is TOPIC_AUTHORIZATION_FAILED, which it shows again and again.
    """
    told = mesh.memory.refused_groups
    if told.get(message.group_id, mesh.now) is None:
        told.put(message.group_id, True, mesh.now)
        log.warning("consumer group refused", group=message.group_id, reason=text)
    if not mesh.session.software_name.startswith(LIBRDKAFKA):
        return refused(message, ConsumerGroupHeartbeatResponse, ErrorCode.INVALID_REQUEST, text)
    yield Gather((), lambda _: False, RETRY_PAUSE_S)
    return refused(message, ConsumerGroupHeartbeatResponse, ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
