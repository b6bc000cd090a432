"""The wide road: a Produce with several partitions, all led by one broker, goes on without being opened, too.

Theory of operation
1. Which partitions stand in such a request changes from one to the next: a producer sends what is ready. So what a
   connection remembers is what stands before the topics (the *head*: client.id, acks, time-out), and of each topic what
   the plan of a request that has passed as it came has found: a `Leg`.
2. Later ones with this head are walked over once. One whose topics all have legs goes straight on while nothing has
   changed that its plan would look at (as in `straight_road`), and one broker leads all its partitions: its `Course`.
3. Its answer passes if that is clean, by the plan's own look. With any other, or with none, the request goes on as its
   plan would have (`produce.ended_astray`); the headers of its batches are kept for that.
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
    """This request has passed, with all of it, as it came but for the names of its topics; it went out in `version`."""
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
    """None if requests about the topic need a look."""
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
