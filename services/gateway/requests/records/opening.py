"""Batches that rules of validation or protection are about: they are opened once, before any cluster gets them.

Theory of operation
1. Only topics with such a rule are concerned; Produce to these goes by its plan (`produce_routes`). The headers of
   batches are judged here (`validating`). If a rule asks for more, another process opens the batches
   (`opened_batches`), with a bound on what may come out of them. It validates the records before it protects them.
2. That process names the schemas that it lacks, and is asked again. Those that a topic's records needed last are given
   along at once, so mostly the first question is enough.
3. A batch is refused or sent as a whole. While keys or the schema registry are away, or nobody has time, the client has
   to send the batch again, in its order.
4. A batch that was sent and got no answer may be stored. When it comes again it is not validated, because the answer
   "refused" would be a lie. It is protected all the same: nothing is stored in the clear.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesh.protection.records import encrypting
from mesh.validation import Content
from services.gateway.requests.conversions import NotConverted, convert
from services.gateway.requests.data_keys import Found, LatestOf, SchemaOf, Wanted, find_keys
from services.gateway.requests.plan import Command
from services.gateway.requests.records import dead_letters, protecting, validating
from services.gateway.requests.records.opened_batches import Opened, Written, opened_batches
from services.gateway.requests.records.validating import HeaderChecked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.protection.rule import Rule as ProtectionRule
    from services.gateway.requests.memory import Memory
    from services.gateway.requests.placement import Wanted as Slotted
    from services.gateway.requests.records.produce_order import Item, Producing

ROUNDS: Final = 2
"""Questions to the process: if schemas are missing, it names all that are."""
MOST_GUESSED: Final = 16
"""Schemas of a topic that are given along before the process has asked for them."""


class Part(NamedTuple):
    """A partition of the request whose batches are opened."""

    wanted: Slotted[Item]
    checked: HeaderChecked
    protects: tuple[ProtectionRule, ...]

    @property
    def topic(self) -> str:
        return self.wanted.topic


def opened(produce: Producing, write: dead_letters.Write) -> Generator[Command, Any, None]:
    """Puts the records as they are to be stored into the request, and notes the answers for refused batches."""
    memory = produce.mesh.memory
    if not memory.validation.rules and not memory.protection.rules:
        return
    parts = [part for wanted in produce.wanted if (part := _part(produce, wanted)) is not None]
    if not parts:
        return
    wanted = _needs(parts, memory, produce.mesh.now)
    found = yield from find_keys(memory.data_keys, wanted)
    ready = [part for part in parts if protecting.has_keys(produce, part.wanted, part.protects, found)]
    if not ready:
        return
    results = yield from _results(produce, ready, wanted, found)
    records: dict[int, bytes] = {}
    for index, part in enumerate(ready):
        result = results if isinstance(results, NotConverted) else results[index]
        if (new := (yield from _take(produce, part, result, write))) is not None:
            records[part.wanted.item[1].start] = new
    if records:
        protecting.replace(produce, records)


def _part(produce: Producing, wanted: Slotted[Item]) -> Part | None:
    """None: the request keeps what is there, or it is refused already."""
    memory, (_, item) = produce.mesh.memory, wanted.item
    protects = encrypting(memory.protection.rules_for(wanted.topic))
    rules = memory.validation.rules_for(wanted.topic) if produce.validates else ()
    checked = validating.by_header(produce, wanted, rules)
    if (wanted.topic, wanted.partition) in produce.invalid:
        return Part(wanted, checked, ()) if checked.opens else None
    return Part(wanted, checked, protects) if item.records_start >= 0 and (protects or checked.opens) else None


def _needs(parts: Iterable[Part], memory: Memory, now: float) -> Wanted:
    """The keys and schemas that the rules name, and the schemas that the topics' records needed last."""
    writing = frozenset(rule.key_id for part in parts for rule in part.protects)
    rules = [rule for part in parts for rule in part.checked.within]
    latest = frozenset(LatestOf(rule.content_schema) for rule in rules if rule.content is Content.SUBJECT)
    known = [names for part in parts if (names := memory.schemas_written.get(part.topic, now)) is not None]
    guess = frozenset[bytes | SchemaOf]().union(*known)
    return Wanted(writing, latest=latest).with_schemas(guess)


def _results(
    produce: Producing, parts: list[Part], wanted: Wanted, found: Found
) -> Generator[Command, Any, list[Opened] | NotConverted]:
    frame, memory, now = produce.request.frame, produce.mesh.memory, produce.mesh.now
    written = [
        Written(
            part.topic,
            bytes(frame[part.wanted.item[1].records_start : part.wanted.item[1].records_end]),
            part.checked.within,
            part.checked.marks,
            part.protects,
            part.checked.refused_as,
        )
        for part in parts
    ]
    for _ in range(ROUNDS):
        results = yield from convert(opened_batches, written, found)
        if not isinstance(results, frozenset):
            return results
        for topic in {part.topic for part in parts}:
            before = memory.schemas_written.get(topic, now) or ()
            memory.schemas_written.put(topic, frozenset([*results, *before][:MOST_GUESSED]), now)
        wanted = wanted.with_schemas(results)
        found = yield from find_keys(memory.data_keys, wanted)
    return NotConverted("the schemas of its records are not all known")


def _take(
    produce: Producing, part: Part, result: Opened | NotConverted, write: dead_letters.Write
) -> Generator[Command, Any, bytes | None]:
    """The records that take the place of the client's; None: the client's stay, or the batches are not stored now."""
    slot = (part.topic, part.wanted.partition)
    if isinstance(result, NotConverted):
        if part.checked.refused_as is not None:
            _come_again(produce, part)
        elif part.protects:
            protecting.put_off(produce, part.wanted, part.protects[0].rule_id, result.reason)
        elif part.checked.enforces:
            produce.put_off_batch(part.wanted)
        return None
    if part.checked.header is not None:
        validating.take(produce, part.wanted, part.checked.header, result.breaches)
    if slot in produce.invalid:
        if result.letters is not None and not (yield from _keep(produce, part.topic, *result.letters, write)):
            _come_again(produce, part)
        return None
    if result.unchecked:
        produce.put_off_batch(part.wanted)
    elif result.unprotected is not None:
        protecting.refuse(produce, part.wanted, result.unprotected)
    return result.records


def _keep(
    produce: Producing, topic: str, letter_topic: str, records: bytes, write: dead_letters.Write
) -> Generator[Command, Any, bool]:
    """Writes dead letters; returns whether they are stored."""
    policy = produce.mesh.memory.protection
    if encrypting(policy.rules_for(topic)) and not encrypting(policy.rules_for(letter_topic)):
        dead_letters.tell_unwritten(letter_topic, f"values of topic {topic!r} are protected, and its own are not")
        return False
    return (yield from dead_letters.written(produce, letter_topic, records, write))


def _come_again(produce: Producing, part: Part) -> None:
    """The batch is not refused before its dead letters are there."""
    del produce.invalid[part.topic, part.wanted.partition]
    produce.put_off_batch(part.wanted)
