"""Batches of topics whose values are encrypted: other records take their places, or they are answered here.

Theory of operation
1. The request gets other records in the places of the client's; producer ids, epochs, sequences, times, keys, the
   number of records and their order stay. So a batch that comes again is encrypted anew, and the broker knows it by its
   sequence all the same.
2. Nothing is stored in the clear, whatever fails. A batch that a rule can't protect (no JSON, a field is missing that
   has to be there, a key that is gone) is refused as by a broker: INVALID_RECORD, with the record's place. While the
   service of keys is away, or nobody has time, the client has to send the batch again, in its order.
3. A batch that was sent and got no answer may be stored. If it can't be protected when it comes again, its client hears
   that it may be written, not that it is refused: the latter could be a lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mesh.protection.keys import NoKey
from services.gateway.requests.auditing.withheld import tell_withheld
from services.gateway.requests.plan import Request
from services.gateway.requests.records.opened_batches import Unprotected, in_protection
from services.gateway.requests.records.produce_order import note_batch
from services.gateway.requests.records.validating import refusal
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.primitives import INT32, write_uvarint
from services.gateway.wire.scanner import scan_produce
from services.gateway.wire.scanner.bounds import IDS_SINCE

if TYPE_CHECKING:
    from mesh.protection.rule import Rule
    from services.gateway.requests.data_keys import Found
    from services.gateway.requests.placement import Wanted
    from services.gateway.requests.records.produce_order import Item, Producing

_FLEXIBLE = flexible_since(ApiKey.PRODUCE) or 0
_SIZE_BYTES = 4


def has_keys(produce: Producing, wanted: Wanted[Item], rules: Iterable[Rule], found: Found) -> bool:
    """Whether the keys of the rules are there; otherwise the batches are answered."""
    for rule in rules:
        key = found.writing[rule.key_id]
        if isinstance(key, NoKey):
            reason = in_protection(rule.rule_id, key.reason) if key.is_gone else key.reason
            refuse(produce, wanted, Unprotected(rule.rule_id, reason, for_now=not key.is_gone))
            return False
    return True


def put_off(produce: Producing, wanted: Wanted[Item], rule_id: str, reason: str) -> None:
    """The client has to send the batches again."""
    tell_withheld(produce.mesh, wanted.topic, wanted.partition, rule_id, reason, is_write=True, for_now=True)
    produce.put_off_batch(wanted)


def refuse(produce: Producing, wanted: Wanted[Item], fault: Unprotected) -> None:
    """Answers batches that can't be protected."""
    slot = (wanted.topic, wanted.partition)
    batch = note_batch(produce, wanted)
    if fault.for_now or (batch is not None and produce.is_in_doubt(slot, batch)):
        put_off(produce, wanted, fault.rule_id, fault.reason)
        return
    tell_withheld(produce.mesh, *slot, fault.rule_id, fault.reason, is_write=True, for_now=False)
    produce.invalid[slot] = refusal(slot[1], ErrorCode.INVALID_RECORD, fault.reason, fault.records)


def replace(produce: Producing, records: Mapping[int, bytes]) -> None:
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
    changed = produce.request = Request(request.header, memoryview(out), request.magic)
    found = scan_produce(changed.frame, request.version, request.header.body_offset, len(out))
    if request.version >= IDS_SINCE:
        names = {topic.topic_id: topic.name for topic in scan.topics}
        found = found.of([topic.named(names[topic.topic_id]) for topic in found.topics if topic.topic_id in names])
    produce.scan = found
    produce.batches.clear()  # they lie elsewhere now
