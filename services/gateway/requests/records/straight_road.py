"""The straight road: a Produce that is like an earlier one goes on without being opened.

Theory of operation
1. Nearly every Produce of a connection is like an earlier one: all bytes before its records are the same (its *head*:
   client.id, acks, time-out, topic, partition). When a request with one batch for one partition has passed as it came,
   the connection remembers its head and its broker: a `Road`.
2. A later request with this head takes that road while nothing has changed that its plan would check. Every change
   replaces objects (tables, clusters, topics), so a comparison of these objects is enough.
3. The answer may differ from that to a stored batch in its numbers alone. With any other answer, or with none, the
   request goes on as its plan would have (`produce.ended_astray`). The road keeps the header of the batch for this
   case.
"""

from typing import Final

from services.gateway.requests.placement import Place
from services.gateway.requests.plan import MeshView, Request
from services.gateway.requests.records.roads import CORRELATION_END, FLEXIBLE, HEAD_AT, NO_TAGS, Named, Road
from services.gateway.requests.records.seams import seam_of
from services.gateway.wire.batches import HEADER_BYTES, BatchHeader, read_kept_header
from services.gateway.wire.primitives import INT32, write_compact_string, write_string
from services.gateway.wire.scanner import ProduceScan, ProduceTopic

_STORED_FLEXIBLE: Final = b"\x01\x00\x00\x00"
"""No record errors, no message, no tags of the partition and the topic."""
_STORED_8: Final = b"\x00\x00\x00\x00\xff\xff"
"""No record errors, no message."""


def road_of(request: Request, mesh: MeshView, scan: ProduceScan, place: Place, version: int) -> Road | None:
    """The road that this request has taken as a whole.

    The request passed as it came but for its topic's name: it went out in `version`. None if later requests need a
    plan.
    """
    if len(scan.topics) != 1 or scan.transactional_id is not None or scan.acks == 0:
        return None
    (topic,) = scan.topics
    if len(topic.partitions) != 1:
        return None
    (partition,) = topic.partitions
    audit, frame = mesh.memory.audit, request.frame
    route, knowledge = mesh.table.route(topic.name), mesh.clusters[place.cluster].by_own_names
    flexible = version >= FLEXIBLE
    if (
        (audit is not None and topic.name in audit.topics)
        or route is None
        or route.visit != 1
        or route.upstream_topic != topic.name
        or partition.records_end - partition.records_start < HEADER_BYTES
        or (flexible and bytes(frame[partition.records_end :]) != NO_TAGS)
    ):
        return None
    known = knowledge.topics.get(topic.name)
    if known is None:
        return None
    head_end = partition.start + INT32.size
    before = route.before
    stored = bytearray(b"\x00\x02" if flexible else INT32.pack(1))
    (write_compact_string if flexible else write_string)(stored, topic.name, "Produce.topic")
    name_end = CORRELATION_END + len(stored)
    stored += (b"\x02" if flexible else INT32.pack(1)) + INT32.pack(partition.partition) + b"\x00\x00"
    return Road(
        bytes(frame[HEAD_AT:head_end]),
        scan.version,
        request.header.client_id,
        scan,
        place,
        mesh.table,
        knowledge,
        known,
        None if before is None else seam_of(topic.name, partition.partition, route, before),
        route,
        bytes(stored),
        16 if version < 5 else 24,
        _STORED_FLEXIBLE if flexible else _STORED_8 if version == 8 else b"",
        None if version == scan.version else _named(frame, topic, head_end, version, name_end),
    )


def _named(frame: memoryview, topic: ProduceTopic, head_end: int, version: int, name_end: int) -> Named:
    head = bytearray(frame[HEAD_AT : topic.start])
    write_compact_string(head, topic.name, "Produce.topic")
    head += frame[topic.partitions_at : head_end]
    return Named(version, bytes(head), b"\x02" + topic.topic_id, name_end)


def kept_batch(header: bytes) -> BatchHeader | None:
    """The batch of this kept header, if its producer numbers its batches."""
    batch = read_kept_header(header)
    return batch if batch is not None and batch.is_idempotent else None
