"""Batches of topics whose values are encrypted: they are written again, encrypted, before any cluster gets them.

Theory of operation
1. Only topics with such a rule are concerned; Produce to these goes by its plan (`produce_routes`). The request gets
   other records in the places of the client's; producer ids, epochs, sequences, times, keys, the number of records and
   their order stay. So a batch that comes again is encrypted anew, and the broker knows it by its sequence all the
   same.
2. Nothing is stored in the clear, whatever fails. A batch that a rule can't protect (no JSON, a field is missing that
   has to be there, a key that is gone) is refused as by a broker: INVALID_RECORD, with the record's place. While the
   service of keys is away, or nobody has time, the client has to send the batch again, in its order.
3. A batch that was sent and got no answer may be stored. If it can't be protected when it comes again, its client hears
   that it may be written, not that it is refused: the latter could be a lie.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mesh.protection.fields import Schemas
from mesh.protection.keys import DataKey, NoKey
from mesh.protection.records import encrypting
from services.gateway.requests.auditing.withheld import Withheld
from services.gateway.requests.data_keys import Wanted, find_keys
from services.gateway.requests.plan import Command, NotConverted, Request, convert
from services.gateway.requests.records.produce_order import note_batch
from services.gateway.requests.records.protected_batches import Unprotected, Written, protected_batches
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from services.gateway.wire.primitives import INT32, write_uvarint
from services.gateway.wire.scanner import scan_produce
from services.gateway.wire.scanner.bounds import IDS_SINCE

if TYPE_CHECKING:
    from mesh.protection.rule import Rule
    from services.gateway.requests.placement import Wanted as Slotted
    from services.gateway.requests.records.produce_order import Item, Producing

_FLEXIBLE = flexible_since(ApiKey.PRODUCE) or 0
_SIZE_BYTES = 4
_NO_OFFSET = -1


class _Part(NamedTuple):
    """A partition of the request whose records are to be encrypted."""

    wanted: Slotted[Item]
    rules: tuple[Rule, ...]


def protected(produce: Producing) -> Generator[Command, Any, None]:
    """Puts encrypted records into the request, and notes the answers for those that can't be encrypted."""
    policy = produce.mesh.memory.protection
    if not policy.rules:
        return
    parts = [
        _Part(wanted, rules)
        for wanted in produce.wanted
        if (rules := encrypting(policy.rules_for(wanted.topic)))
        and (wanted.topic, wanted.partition) not in produce.invalid
        and wanted.item[1].records_start >= 0
    ]
    if not parts:
        return
    writing = frozenset(rule.key_id for part in parts for rule in part.rules)
    found = (yield from find_keys(produce.mesh.memory.data_keys, Wanted(writing))).writing
    ready = [part for part in parts if _has_keys(produce, part, found)]
    if not ready:
        return
    frame = produce.request.frame
    written = [
        Written(wanted.topic, rules, bytes(frame[wanted.item[1].records_start : wanted.item[1].records_end]))
        for wanted, rules in ready
    ]
    keys = {key_id: key for key_id, key in found.items() if not isinstance(key, NoKey)}
    results = yield from _encrypted(produce, written, keys)
    records: dict[int, bytes] = {}
    for index, part in enumerate(ready):
        if isinstance(results, NotConverted):
            _put_off(produce, part, part.rules[0].rule_id, results.reason)
        elif isinstance(result := results[index], Unprotected):
            if result.for_now:
                _put_off(produce, part, result.rule_id, result.reason)
            else:
                _refuse(produce, part, result)
        else:
            records[part.wanted.item[1].start] = result
    if records:
        _replace(produce, records)


def _encrypted(
    produce: Producing, written: list[Written], keys: Mapping[str, DataKey]
) -> Generator[Command, Any, list[bytes | Unprotected] | NotConverted]:
    schemas: Schemas = {}
    for _ in range(2):  # if schemas are missing, all that are missing are named
        results = yield from convert(protected_batches, written, keys, schemas)
        if not isinstance(results, frozenset):
            return results
        schemas = (yield from find_keys(produce.mesh.memory.data_keys, Wanted(schemas=results))).schemas
    return NotConverted("the schemas of its records are not all known")


def _has_keys(produce: Producing, part: _Part, found: Mapping[str, object]) -> bool:
    for rule in part.rules:
        key = found[rule.key_id]
        if isinstance(key, NoKey):
            if key.is_gone:
                _refuse(produce, part, Unprotected(rule.rule_id, f"{key.reason} (rule {rule.rule_id!r} of the mesh)"))
            else:
                _put_off(produce, part, rule.rule_id, key.reason)
            return False
    return True


def _put_off(produce: Producing, part: _Part, rule_id: str, reason: str) -> None:
    _tell(produce, part, rule_id, reason, for_now=True)
    slot = (part.wanted.topic, part.wanted.partition)
    produce.put_off(slot, numbered=note_batch(produce, part.wanted) is not None)


def _refuse(produce: Producing, part: _Part, fault: Unprotected) -> None:
    slot = (part.wanted.topic, part.wanted.partition)
    batch = note_batch(produce, part.wanted)
    if batch is not None and produce.is_in_doubt(slot, batch):
        _put_off(produce, part, fault.rule_id, fault.reason)
        return
    _tell(produce, part, fault.rule_id, fault.reason, for_now=False)
    produce.invalid[slot] = PartitionProduceResponse(
        index=slot[1],
        error_code=ErrorCode.INVALID_RECORD,
        base_offset=_NO_OFFSET,
        record_errors=[BatchIndexAndErrorMessage(index, reason) for index, reason in fault.records],
        error_message=fault.reason,
    )


def _tell(produce: Producing, part: _Part, rule_id: str, reason: str, *, for_now: bool) -> None:
    session, client_id = produce.mesh.session, produce.request.header.client_id or ""
    slot = (part.wanted.topic, part.wanted.partition)
    told = Withheld(
        session.principal, session.address, client_id, *slot, rule_id, reason, is_write=True, for_now=for_now
    )
    produce.mesh.memory.on_withheld(told)


def _replace(produce: Producing, records: Mapping[int, bytes]) -> None:
    """Gives the request these records, by the starts of their partitions' entries."""
    request, scan = produce.request, produce.scan
    frame, out, at = request.frame, bytearray(), 0
    for topic in scan.topics:
        for part in topic.partitions:
            new = records.get(part.start)
            if new is None:
                continue
            out += frame[at : part.start + INT32.size]  # up to the number of the partition; then comes the length
            if scan.version >= _FLEXIBLE:
                write_uvarint(out, len(new) + 1)
            else:
                out += INT32.pack(len(new))
            out += new
            at = part.records_end
    out += frame[at:]
    INT32.pack_into(out, 0, len(out) - _SIZE_BYTES)
    changed = produce.request = Request(request.header, memoryview(out))
    found = scan_produce(changed.frame, request.version, request.header.body_offset, len(out))
    if request.version >= IDS_SINCE:
        names = {topic.topic_id: topic.name for topic in scan.topics}
        found = found.of([topic.named(names[topic.topic_id]) for topic in found.topics if topic.topic_id in names])
    produce.scan = found
    produce.batches.clear()  # they lie elsewhere now
