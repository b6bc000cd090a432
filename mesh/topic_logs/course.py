"""The next steps of a copy of one partition, from what a Fetch of its source brings. No I/O.

1. The source is read as committed: up to the last stable offset, with the list of aborted transactions.
2. A batch of records goes to the target. All other offsets of the source are a gap: markers of transactions, records of
   aborted transactions, and offsets that the source does not have any more.
3. The steps follow one another without a hole. A run of offsets that readers never see is one gap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mesh.topic_logs.batches import Batch, ForeignBatchError, batches


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that take a place on the target, and that no reader sees."""

    start: int
    stop: int


Step = Batch | Gap


def steps(position: int, records: bytes, aborted: Iterable[tuple[int, int]], stop: int) -> Iterator[Step]:
    """The steps from `position` on. `aborted`: producer id and first offset; `stop`: the first offset not to copy.

    ForeignBatchError: the source has a batch that can't be copied.
    """
    waiting = [(first, producer_id) for producer_id, first in aborted]
    heapq.heapify(waiting)
    ending: set[int] = set()
    at = position
    for batch in batches(records):
        if batch.next_offset <= position:
            continue
        if batch.base_offset >= stop:
            break
        if batch.base_offset < position:
            raise ForeignBatchError(
                f"the copy is at offset {position}, which is inside the source's batch of {batch.base_offset} to "
                f"{batch.next_offset - 1}: the target has another log than the source"
            )
        while waiting and waiting[0][0] < batch.next_offset:
            ending.add(heapq.heappop(waiting)[1])
        if batch.is_control:
            ending.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in ending):
            if batch.next_offset - batch.base_offset != batch.records:
                raise ForeignBatchError(
                    f"the batch at offset {batch.base_offset} has lost records (compaction), and brokers take no such "
                    "batch from a producer"
                )
            if at < batch.base_offset:
                yield Gap(at, batch.base_offset)
            yield batch
            at = batch.next_offset
        position = batch.next_offset
    if at < position:
        yield Gap(at, position)
