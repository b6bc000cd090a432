"""Notes how far topics under standby are acknowledged, for a Produce that went by its plan (see `acknowledged`)."""

from typing import TYPE_CHECKING

from services.gateway.requests.auditing.batches import results_of
from services.gateway.requests.plan import Answer
from services.gateway.requests.records.stitched import stretches
from services.gateway.wire.batches import count_records

if TYPE_CHECKING:
    from services.gateway.requests.records.produce_order import Producing


def note_acknowledged(produce: "Producing", answer: Answer) -> None:
    """The Produce has its answer, which goes to the client right afterwards."""
    scan, mesh, frame = produce.scan, produce.mesh, produce.request.frame
    logs = mesh.memory.acknowledged
    if scan.acks == 0 or not any(topic.name in logs.by_topic for topic in scan.topics):
        return
    results = results_of(produce, answer)
    for topic in scan.topics:
        route = mesh.table.route(topic.name)
        log = None if route is None else logs.of(topic.name, route.cluster)
        for part in topic.partitions if log is not None else ():
            result = results.get((topic.name, part.partition))
            if log is None or result is None or result.error_code or result.base_offset < 0 or part.records_start < 0:
                continue
            parts = stretches(topic.name, part.partition, mesh)
            start = parts[-1].there(result.base_offset) if parts else result.base_offset
            records = part.records if not frame else count_records(frame, part.records_start, part.records_end)
            if scan.transactional_id is not None:
                log.transactional.add(part.partition)
            log.note(part.partition, start + records)
