"""Batches that the rules of validation refuse: they are answered here, and no cluster gets them.

Theory of operation
1. A batch is refused or sent as a whole. The other batches of its request go on.
2. The gateway answers as a broker that refuses records does: INVALID_RECORD, or Kafka's own error for the condition.
   No client sends such a batch again. Java's producer cuts a batch that is too large into smaller ones, as ever.
3. A broker checks records before sequences. So does the gateway: a refused batch is not waited for
   (`produce_order`), and later batches of its producer go on to the broker. To the broker the refused batch is missing,
   as a batch that it has refused itself is. Producers know what to do then: Java's and librdkafka's raise their epoch.
4. The header of a batch is enough for some conditions. For the others the batch is opened (`opening`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from mesh.validation import Batch, Breach, Fault, Mode, breach
from services.gateway.requests.auditing.invalid import InvalidBatch
from services.gateway.wire.batches import BatchHeader, batches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from services.gateway.wire.primitives import WireError

if TYPE_CHECKING:
    from mesh.validation import Rule
    from services.gateway.requests.placement import Wanted
    from services.gateway.requests.records.produce_order import Item, Producing

CODES: Final = {
    Fault.RECORD: ErrorCode.INVALID_RECORD,
    Fault.SIZE: ErrorCode.MESSAGE_TOO_LARGE,
    Fault.ACKS: ErrorCode.INVALID_REQUIRED_ACKS,
    Fault.TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
    Fault.FORMAT: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
NO_OFFSET: Final = -1
JAVA: Final = "apache-kafka-java"
"""The software whose producer cuts a batch that is too large into smaller ones, and sends these."""


class HeaderChecked(NamedTuple):
    """A batch whose header was judged."""

    header: BatchHeader | None = None
    """None: no rule is about what is there."""
    within: tuple[Rule, ...] = ()
    """The rules about its records."""
    marks: tuple[str, ...] = ()
    """The reasons by which all its records are marked."""
    refused_as: tuple[str, str] | None = None
    """The topic of its dead letters, and the reason, if the batch is refused."""

    @property
    def opens(self) -> bool:
        return bool(self.within or self.marks or self.refused_as)

    @property
    def enforces(self) -> bool:
        """Whether the batch is not stored unless its records are checked."""
        return bool(self.marks) or any(rule.mode is not Mode.OBSERVE for rule in self.within)


def by_header(produce: Producing, wanted: Wanted[Item], rules: tuple[Rule, ...]) -> HeaderChecked:
    """Judges the header of a partition's batch; notes the answer in `produce.invalid` if a rule refuses the batch."""
    header = _checked_batch(produce, wanted) if rules else None
    if header is None:
        return HeaderChecked()
    size = header.end - header.start
    asked = produce.scan.acks, produce.request.magic
    batch = Batch(header.compression, size, header.max_timestamp, header.is_idempotent, *asked)
    found = [each for rule in rules if (each := breach(rule, batch, produce.mesh.time_ms)) is not None]
    take(produce, wanted, header, found)
    refusing = next((each for each in found if each.rule.mode is Mode.ENFORCE), None)
    if refusing is not None:
        topic = "" if _comes_in_pieces(produce, header, refusing) else refusing.rule.dead_letter_topic
        return HeaderChecked(header, refused_as=(topic, refusing.reason) if topic else None)
    marks = tuple(each.reason for each in found if each.rule.mode is Mode.MARK)
    return HeaderChecked(header, tuple(rule for rule in rules if rule.opens_records), marks)


def _comes_in_pieces(produce: Producing, header: BatchHeader, refusing: Breach) -> bool:
    """Whether the client sends the records again, in smaller batches: dead letters of these would be there twice."""
    return (
        refusing.fault is Fault.SIZE and header.record_count > 1 and produce.mesh.session.software_name.lower() == JAVA
    )


def _checked_batch(produce: Producing, wanted: Wanted[Item]) -> BatchHeader | None:
    """The batch that rules are about. None: the broker refuses what is there, or it may have the batch already."""
    _, part = wanted.item
    if part.records_start < 0:
        return None
    try:
        header, *others = _first_two(produce.request.frame, part.records_start, part.records_end)
    except (WireError, ValueError):
        return None
    return None if others or produce.is_in_doubt((wanted.topic, wanted.partition), header) else header


def take(produce: Producing, wanted: Wanted[Item], header: BatchHeader, found: Iterable[Breach]) -> None:
    """Reports the rules that a batch breaks, up to the first one that refuses it."""
    slot = (wanted.topic, wanted.partition)
    session, client_id = produce.mesh.session, produce.request.header.client_id or ""
    for each in found:
        told = InvalidBatch(session.principal, session.address, client_id, *slot, header.record_count, each)
        produce.mesh.memory.on_invalid(told)
        if told.enforced:
            produce.invalid[slot] = refusal(slot[1], CODES[each.fault], each.reason, each.records)
            return


def refusal(partition: int, code: int, reason: str, records: Iterable[tuple[int, str]]) -> PartitionProduceResponse:
    """The answer for a batch that rules refuse."""
    return PartitionProduceResponse(
        index=partition,
        error_code=code,
        base_offset=NO_OFFSET,
        record_errors=[BatchIndexAndErrorMessage(index, why) for index, why in records],
        error_message=reason,
    )


def _first_two(frame: memoryview, start: int, end: int) -> list[BatchHeader]:
    return [header for header, _ in zip(batches(frame, start, end), range(2), strict=False)]
