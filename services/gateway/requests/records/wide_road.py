"""The wide road: a Produce with several partitions, all led by one broker, goes on without being opened, too.

Theory of operation
1. The partitions in such a request change from one to the next: a producer sends the batches that are ready. So a
   connection remembers the bytes before the topics (the *head*: client.id, acks, time-out). It also remembers a `Leg`
   of each topic: the findings of the plan of a request that has passed as it came.
2. Later requests with this head are scanned once. A request goes straight on if all its topics have legs, and one
   broker leads all its partitions: its `Course`. As in `straight_road`, nothing may have changed that its plan would
   check.
3. The answer passes if it is clean, by the same check as in the plan. With any other answer, or with none, the request
   goes on as its plan would have (`produce.ended_astray`); the headers of its batches are kept for this case.
"""

from services.gateway.requests.placement import Place
from services.gateway.requests.plan import MeshView, Request
from services.gateway.requests.records.roads import HEAD_AT
from services.gateway.requests.records.seams import seam_of
from services.gateway.requests.records.wide_roads import Leg, WideRoad
from services.gateway.wire.primitives import write_compact_string
from services.gateway.wire.scanner import ProduceScan, ProduceTopic
from services.gateway.wire.scanner.bounds import IDS_SINCE


def remember(request: Request, mesh: MeshView, scan: ProduceScan, place: Place, version: int) -> None:
    """Remembers a request that has passed as a whole.

    It passed as it came but for the names of its topics; it went out in `version`.
    """
    if scan.transactional_id is not None or scan.acks == 0:
        return
    roads, header = mesh.session.wide_roads, request.header
    head = bytes(request.frame[HEAD_AT : scan.topics_at])
    road = roads.of_head(head)
    if road is None or road.table is not mesh.table or road.version != scan.version:
        road = WideRoad(
            head, scan.version, header.client_id, header.body_offset, scan.acks, scan.timeout_ms, mesh.table
        )
        if not roads.learn(road):
            return
    for topic in scan.topics:
        key = topic.topic_id if scan.version >= IDS_SINCE else topic.name
        leg = _leg_of(topic, mesh, place, version)
        if leg is None:
            road.legs.pop(key, None)
        else:
            road.learn(key, leg)


def _leg_of(topic: ProduceTopic, mesh: MeshView, place: Place, version: int) -> Leg | None:
    """The leg of the topic; None if requests about the topic need a plan."""
    audit, route = mesh.memory.audit, mesh.table.route(topic.name)
    knowledge = mesh.clusters[place.cluster].by_own_names
    known = knowledge.topics.get(topic.name)
    if (
        (audit is not None and topic.name in audit.topics)
        or route is None
        or route.visit != 1
        or route.upstream_topic != topic.name
        or known is None
    ):
        return None
    before = route.before
    written = bytearray()
    write_compact_string(written, topic.name, "Produce.topic")
    return Leg(
        topic.name,
        topic.topic_id,
        bytes(written),
        version,
        route,
        knowledge,
        known,
        None if before is None else seam_of(topic.name, 0, route, before),
        all(known.is_single(number) for number in range(len(known.leaders))),
    )
