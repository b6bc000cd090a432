"""Which answered produces are in the share of a rehearsal.

Theory of operation
1. A topic in a rehearsal goes by the plan (`produce_routes`). All other topics pay nothing.
2. A hash of topic, partition and the batch's own CRC says whether a batch is in the share. Each gateway says the same,
   and whoever has the batch can say it, too.
3. Only produces that a cluster has answered count: without acks there is nothing to compare.
4. Records are those that the cluster has got: protected values stay protected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from services.gateway.requests.auditing.batches import results_of
from services.gateway.requests.plan import Answer
from services.gateway.requests.rehearsing.topics import Produced
from services.gateway.wire.batches import CRC_AT, HEADER_BYTES
from services.gateway.wire.primitives import UINT32, Buffer

if TYPE_CHECKING:
    from services.gateway.requests.placement import Wanted
    from services.gateway.requests.records.produce_order import Item, Producing

WHOLE: Final = 10_000
"""The share of all batches."""


def is_in_share(topic: str, partition: int, batch: Buffer, share: int) -> bool:
    """Whether the batch that begins here is one of so many in ten thousand."""
    crc = bytes(memoryview(batch)[CRC_AT : CRC_AT + UINT32.size])
    return crc32c(f"{topic}/{partition}/".encode() + crc) % WHOLE < share


def timed(produce: Producing, parts: Sequence[Wanted[Item]] | None) -> Callable[[], None]:
    """Notes the time of an answer that is waited for from now on."""
    clock = produce.mesh.clock
    began, slots = clock(), [(each.topic, each.partition) for each in (produce.wanted if parts is None else parts)]

    def answered() -> None:
        produce.took |= dict.fromkeys(slots, clock() - began)

    return answered


def tell_rehearsals(produce: Producing, answer: Answer) -> None:
    """A Produce has its answer, which goes to the client right afterwards."""
    scan, mesh, frame = produce.scan, produce.mesh, produce.request.frame
    rehearsals = mesh.memory.rehearsals
    if scan.acks == 0 or not produce.took or not any(topic.name in rehearsals for topic in scan.topics):
        return
    results = results_of(produce, answer)
    found: list[Produced] = []
    for topic in scan.topics:
        rehearsed, route = rehearsals.get(topic.name), mesh.table.route(topic.name)
        if rehearsed is None or route is None or route.cluster == rehearsed.candidate:
            continue
        if mesh.time_ms >= rehearsed.until_ms:
            continue
        for part in topic.partitions:
            slot = (topic.name, part.partition)
            result, seconds = results.get(slot), produce.took.get(slot)
            if result is None or seconds is None or part.records_end - part.records_start < HEADER_BYTES:
                continue
            records = frame[part.records_start : part.records_end]
            if is_in_share(*slot, records, rehearsed.share):
                found.append(
                    Produced(
                        rehearsed,
                        route.cluster,
                        part.partition,
                        result.error_code,
                        seconds,
                        len(records),
                        scan.acks,
                        scan.timeout_ms,
                        produce.request.header.client_id,
                        mesh.session.number,
                        records,
                    )
                )
    if found:
        mesh.memory.on_rehearsed(found)
