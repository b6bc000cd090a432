"""Batches that the rules of validation refuse: they are answered here, and no cluster gets them.

Theory of operation
1. The gateway checks the batches of topics with a rule alone; Produce to these goes by its plan (`produce_routes`). A
   batch is refused or sent as a whole. The other batches of its request go on.
2. The gateway answers as a broker that refuses records does: INVALID_RECORD, or Kafka's own error for the condition.
   No client sends such a batch again. Java's producer cuts a batch that is too large into smaller ones, as ever.
3. A broker checks records before sequences. So does the gateway: a refused batch is not waited for
   (`produce_order`), and later batches of its producer go on to the broker. To the broker the refused batch is missing,
   as a batch that it has refused itself is. Producers know what to do then: Java's and librdkafka's raise their epoch.
4. Some conditions are about records. The batches of topics with such a rule are opened in another process (`Convert`),
   with a bound on what may come out of them. If nobody has time for it, the client has to try again. So it is while
   the schema registry is away, if a rule asks for schemas that are new to the gateway, unless the rule stores them.
5. A batch that was sent and got no answer may be stored. When it comes again it is sent again, whatever the rules say
   now, because the answer "refused" would be a lie.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesh.compression import Allowance
from mesh.protection.keys import NoKey
from mesh.schemas.framing import framed
from mesh.schemas.schema import FormatError
from mesh.validation import Batch, Breach, Fault, Mode, Record, ValueSchema, breach, record_fault
from mesh.validation.checks import in_rule
from services.gateway.requests import data_keys
from services.gateway.requests.auditing.invalid import InvalidBatch
from services.gateway.requests.data_keys import SchemaOf, find_keys
from services.gateway.requests.plan import Command, NotConverted, convert
from services.gateway.wire.batches import BatchHeader, batches, read_batch_header
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from services.gateway.wire.primitives import WireError
from services.gateway.wire.record_marks import RecordMarks, read_marks

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
MOST_DECOMPRESSED: Final = 100 * 1024 * 1024
"""Bytes that may come out of the batches of one request."""
MOST_TOLD: Final = 100
"""Records of one batch that the answer names."""


def validated(produce: Producing) -> Generator[Command, Any, None]:
    """Notes the answers for the batches that are refused in `produce.invalid`, and reports all that break a rule."""
    policy = produce.mesh.memory.validation
    if not policy.rules:
        return
    opened: list[tuple[Slot, BatchHeader, tuple[Rule, ...]]] = []
    for wanted in produce.wanted:
        rules = policy.rules_for(wanted.topic)
        header = _checked_batch(produce, wanted) if rules else None
        if header is None:
            continue
        slot = (wanted.topic, wanted.partition)
        _check_header(produce, slot, header, rules)
        within = tuple(rule for rule in rules if rule.opens_records)
        if within and slot not in produce.invalid:
            opened.append((slot, header, within))
    if opened:
        frame = produce.request.frame
        found = yield from _opened(
            produce, [Opened(slot[0], bytes(frame[header.start : header.end]), rules) for slot, header, rules in opened]
        )
        for index, (slot, header, rules) in enumerate(opened):
            broken = found if isinstance(found, NotConverted) else found[index]
            if isinstance(broken, NotConverted):
                _put_off(produce, slot, header, rules)
            else:
                _take(produce, slot, header, broken)


def _opened(
    produce: Producing, batches: list[Opened]
) -> Generator[Command, Any, list[list[Breach] | NotConverted] | NotConverted]:
    """The breaches of each batch. The process that opens the batches names the schemas that it has to know about."""
    known: Mapping[SchemaOf, NoKey | None] = {}
    for _ in range(2):
        results = yield from convert(records_breaches, batches, known)
        if not isinstance(results, frozenset):
            return results
        known = (yield from find_keys(produce.mesh.memory.data_keys, data_keys.Wanted(registered=results))).registered
    return NotConverted("the schemas of its records are not all known")


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


def _check_header(produce: Producing, slot: Slot, header: BatchHeader, rules: tuple[Rule, ...]) -> None:
    size = header.end - header.start
    batch = Batch(header.compression, size, header.max_timestamp, header.is_idempotent, produce.scan.acks)
    found = (breach(rule, batch, produce.mesh.time_ms) for rule in rules)
    _take(produce, slot, header, [each for each in found if each is not None])


def _take(produce: Producing, slot: Slot, header: BatchHeader, found: Iterable[Breach]) -> None:
    """Reports the rules that a batch breaks, up to the first one that refuses it."""
    session, client_id = produce.mesh.session, produce.request.header.client_id or ""
    for each in found:
        told = InvalidBatch(session.principal, session.address, client_id, *slot, header.record_count, each)
        produce.mesh.memory.on_invalid(told)
        if told.enforced:
            produce.invalid[slot] = PartitionProduceResponse(
                index=slot[1],
                error_code=CODES[each.fault],
                base_offset=NO_OFFSET,
                record_errors=[BatchIndexAndErrorMessage(index, reason) for index, reason in each.records],
                error_message=each.reason,
            )
            return


def _put_off(produce: Producing, slot: Slot, header: BatchHeader, rules: tuple[Rule, ...]) -> None:
    """Nobody had time to open the records: the client has to send them again, in their order."""
    if all(rule.mode is Mode.OBSERVE for rule in rules):
        return
    produce.put_off(slot, numbered=header.is_idempotent)


class Opened(NamedTuple):
    """A batch that is opened, and the rules about its records."""

    topic: str
    data: bytes
    rules: tuple[Rule, ...]


def records_breaches(
    found: list[Opened], known: Mapping[SchemaOf, NoKey | None]
) -> list[list[Breach] | NotConverted] | frozenset[SchemaOf]:
    """The rules that the records of each batch break, or the schemas that have to be asked for first.

    Plain data: it runs in another process, a few us a record. NotConverted: nobody knows the schemas of this batch.
    """
    allowance, schemas = Allowance(MOST_DECOMPRESSED), _Schemas(known)
    results: list[list[Breach] | NotConverted] = []
    for each in found:
        schemas.unchecked = ""
        broken = _breaches(each, allowance, schemas)
        results.append(NotConverted(schemas.unchecked) if schemas.unchecked else broken)
    return frozenset(schemas.missing) if schemas.missing else results


class _Schemas:
    """The schemas that records name, as far as the registry has answered about them."""

    def __init__(self, known: Mapping[SchemaOf, NoKey | None]) -> None:
        self._known = known
        self.missing: set[SchemaOf] = set()
        self.unchecked = ""
        """Why a batch can't be checked now."""

    def fault(self, rule: Rule, topic: str, marks: RecordMarks) -> str | None:
        """Why the value names no schema that the rule takes."""
        headers = [(name.decode(errors="replace"), value) for name, value in marks.headers]
        try:
            prefix, _ = framed("value", marks.value_head or b"", headers)
        except FormatError as error:
            return f"the value names no schema: {error}"
        question = SchemaOf(prefix, f"{topic}-value" if rule.value_schema is ValueSchema.SUBJECT else "")
        if question not in self._known:
            self.missing.add(question)
            return None
        told = self._known[question]
        if told is None:
            return None
        if told.is_gone:
            return told.reason
        if not rule.stores_unchecked and rule.mode is Mode.ENFORCE:
            self.unchecked = told.reason
        return None


def _breaches(opened: Opened, allowance: Allowance, schemas: _Schemas) -> list[Breach]:
    data, rules = opened.data, opened.rules
    broken: dict[Rule, list[tuple[int, str]]] = {rule: [] for rule in rules}
    try:
        for index, marks in enumerate(read_marks(data, read_batch_header(data, 0, len(data)), allowance)):
            names, has_value = frozenset(name for name, _ in marks.headers), marks.value_head is not None
            for rule, records in broken.items():
                asks = rule.value_schema is not None and has_value
                fault = schemas.fault(rule, opened.topic, marks) if asks else None
                record = Record(marks.key is not None, has_value, names, marks.size, fault)
                reason = record_fault(rule, record) if len(records) < MOST_TOLD else None
                if reason is not None:
                    records.append((index, in_rule(rule, reason)))
    except WireError as error:
        reason = f"the records can't be read: {error}"
        return [Breach(rule, Fault.RECORD, in_rule(rule, reason)) for rule in rules]
    return [
        Breach(rule, Fault.RECORD, f"record {records[0][0]}: {records[0][1]}", tuple(records))
        for rule, records in broken.items()
        if records
    ]


def _first_two(frame: memoryview, start: int, end: int) -> list[BatchHeader]:
    return [header for header, _ in zip(batches(frame, start, end), range(2), strict=False)]
