"""Batches that the rules of validation refuse: they are answered here, and no cluster gets them.

Theory of operation
1. Only topics with a rule are looked at; Produce to these goes by its plan (`produce_routes`). A batch is refused or
   sent as a whole. The other batches of its request go on.
2. The gateway answers as a broker that refuses records does: INVALID_RECORD, or Kafka's own error for the condition.
   No client sends such a batch again. Java's producer cuts a batch that is too large into smaller ones, as ever.
3. A broker looks at records before it looks at sequences. So does the gateway: a refused batch is not waited for
   (`produce_order`), and later batches of its producer go on to the broker. To the broker the refused batch is missing,
   as a batch that it has refused itself is. Producers know what to do then: Java's and librdkafka's raise their epoch.
4. A batch that was sent and got no answer may be stored. When it comes again it is sent again, whatever the rules say
   now, because the answer "refused" would be a lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.validation import Batch, Breach, Fault, breach
from services.gateway.requests.auditing.invalid import InvalidBatch
from services.gateway.wire.batches import BatchHeader, batches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import PartitionProduceResponse
from services.gateway.wire.primitives import WireError

if TYPE_CHECKING:
    from mesh.validation import Rule
    from services.gateway.requests.placement import Wanted
    from services.gateway.requests.records.produce_order import Item, Producing, Slot

CODES: Final = {
    Fault.RECORD: ErrorCode.INVALID_RECORD,
    Fault.SIZE: ErrorCode.MESSAGE_TOO_LARGE,
    Fault.ACKS: ErrorCode.INVALID_REQUIRED_ACKS,
    Fault.TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
}
NO_OFFSET: Final = -1


def validate(produce: Producing) -> None:
    """Notes the answers for the batches that are refused in `produce.invalid`, and reports all that break a rule."""
    policy = produce.mesh.memory.validation
    if not policy.rules:
        return
    for wanted in produce.wanted:
        rules = policy.rules_for(wanted.topic)
        if rules:
            _validate(produce, wanted, rules)


def _validate(produce: Producing, wanted: Wanted[Item], rules: tuple[Rule, ...]) -> None:
    _, part = wanted.item
    if part.records_start < 0:
        return
    try:
        header, *others = _first_two(produce.request.frame, part.records_start, part.records_end)
    except (WireError, ValueError):  # not a batch: its broker will report that
        return
    slot = (wanted.topic, wanted.partition)
    if others or produce.is_in_doubt(slot, header):  # brokers refuse several batches for one partition
        return
    batch = Batch(
        header.compression,
        header.end - header.start,
        header.max_timestamp,
        header.is_idempotent,
        produce.scan.acks,
    )
    for rule in rules:
        found = breach(rule, batch, produce.mesh.time_ms)
        if found is None:
            continue
        told = _told(produce, slot, header.record_count, found)
        produce.mesh.memory.on_invalid(told)
        if told.enforced:
            produce.invalid[slot] = PartitionProduceResponse(
                index=wanted.partition,
                error_code=CODES[found.fault],
                base_offset=NO_OFFSET,
                error_message=found.reason,
            )
            return


def _first_two(frame: memoryview, start: int, end: int) -> list[BatchHeader]:
    return [header for header, _ in zip(batches(frame, start, end), range(2), strict=False)]


def _told(produce: Producing, slot: Slot, records: int, found: Breach) -> InvalidBatch:
    session, client_id = produce.mesh.session, produce.request.header.client_id or ""
    return InvalidBatch(session.principal, session.address, client_id, *slot, records, found)
