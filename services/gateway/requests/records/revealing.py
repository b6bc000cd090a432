"""Records of topics with rules of protection, on their way to a client: each client gets what the rules say of it.

Theory of operation
1. Only topics with a rule are concerned; Fetch of these goes by its plan (`fetch_routes`). Offsets, markers of
   transactions, the lists of aborted ones and the batches themselves stay: only values and headers of records change.
   A batch that is cut short at the end of an answer is left out; the client asks for it again.
2. A client that a rule refuses hears TOPIC_AUTHORIZATION_FAILED, also about an empty topic: no client raises fewer
   alarms, and none takes it for a topic without records. The same error stands for values that are gone for ever, where
   the rule says "refusal".
3. While the service of keys is away, the client gets the records before the first one that can't be decrypted. Then it
   hears UNKNOWN_SERVER_ERROR after its wait. Clients log this error and try again, so they go on by themselves when the
   keys are back. An error that stops clients would make an outage of the service of keys one of all consumers. An error
   that clients pass over in silence (NOT_LEADER_OR_FOLLOWER) would make the topic look empty.
4. The data keys that a topic's records needed last are given along at once. The process that opens the batches names
   those that are missing; then it is asked again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mesh.protection.keys import NoKey, Wrapped
from mesh.protection.rule import Others, Rule
from services.gateway.requests.auditing.withheld import tell_withheld
from services.gateway.requests.conversions import NotConverted, convert
from services.gateway.requests.data_keys import Found, Wanted, find_keys
from services.gateway.requests.plan import Command, Gather, MeshView
from services.gateway.requests.records import broker_fetches
from services.gateway.requests.records.revealed_batches import (
    MOST_DATA_KEYS,
    Revealed,
    Stored,
    revealed_batches,
)
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.scanner.fetch_join import refilled

if TYPE_CHECKING:
    from services.gateway.requests.records.fetch_poll import Poll

ROUNDS = 4
"""Questions to the process that opens the batches. More than two are needed only if it can't name all keys at once."""
MOST_GUESSED = 16
"""Data keys, and schemas, that are given along before the process has asked for them."""
NOT_A_READER = "the client is no reader"


def principals_of(mesh: MeshView) -> tuple[str, ...]:
    """All that the client is, as rules name readers."""
    session = mesh.session
    return (session.principal, *session.proved.group_principals)


def refusing(rules: Sequence[Rule], principals: tuple[str, ...]) -> Rule | None:
    """The rule that keeps the whole topic from a client."""
    return next((rule for rule in rules if rule.others is Others.REFUSAL and not rule.is_for(principals)), None)


def bar(poll: Poll) -> Generator[Command, Any, None]:
    """Takes the partitions out of the poll that a rule refuses to its client."""
    mesh = poll.mesh
    policy = mesh.memory.protection
    if not policy.rules:
        return
    principals = principals_of(mesh)
    for topic, partition in list(poll.wanted):
        if not isinstance(topic, str):
            continue
        rule = refusing(policy.rules_for(topic), principals)
        if rule is not None:
            tell_withheld(mesh, topic, partition, rule.rule_id, NOT_A_READER, for_now=False)
            poll.refused[topic, partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if poll.refused:
        poll.wanted = {slot: position for slot, position in poll.wanted.items() if slot not in poll.refused}
        if not poll.wanted:  # the client would ask again at once
            yield Gather((), lambda _: False, poll.limits.wait_s, since=mesh.now)


def reveal(poll: Poll) -> Generator[Command, Any, None]:
    """Gives the partitions that were found the records that their client may see."""
    mesh = poll.mesh
    policy = mesh.memory.protection
    if not policy.rules:
        return
    concerned = [
        (topic, partition, rules)
        for (topic, partition), each in poll.found.items()
        if isinstance(topic, str) and each.part.record_bytes > 0 and (rules := policy.rules_for(topic))
    ]
    if not concerned:
        return
    poll.whole = None
    poll.own()  # the plan waits now
    stored: list[Stored] = []
    for topic, partition, rules in concerned:
        each = poll.found[topic, partition]
        records = memoryview(each.buffer)[each.part.records_start : each.part.records_end]
        stored.append(Stored(topic, rules, bytes(records)))
    results = yield from revealed_records(mesh, stored)
    for (topic, partition, _), result in zip(concerned, results, strict=True):
        slot = (topic, partition)
        code = withheld_code(mesh, topic, partition, result)
        each = poll.found[slot]
        if code is None:
            buffer, part = refilled(each.buffer, each.part, each.version, result.records)
            poll.found[slot] = broker_fetches.Found(buffer, each.version, part)
        else:
            del poll.found[slot]
            poll.refused[slot] = code
    if poll.refused and not any(each.part.record_bytes or each.part.error_code for each in poll.found.values()):
        yield Gather((), lambda _: False, poll.limits.wait_s, since=mesh.now)


def withheld_code(mesh: MeshView, topic: str, partition: int, result: Revealed) -> ErrorCode | None:
    """Reports what is kept from the client; the error for it, if it gets no record at all."""
    if not result.withheld:
        return None
    tell_withheld(mesh, topic, partition, result.rule_id, result.withheld, for_now=result.for_now)
    if result.records:
        return None
    if result.is_damaged:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.UNKNOWN_SERVER_ERROR if result.for_now else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def keys_wanted(names: Iterable[Wrapped | bytes]) -> Wanted:
    """The question for these data keys and schemas."""
    keys, prefixes = set[Wrapped](), set[bytes]()
    for each in names:
        if isinstance(each, Wrapped):
            keys.add(each)
        else:
            prefixes.add(each)
    return Wanted(reading=frozenset(keys), schemas=frozenset(prefixes))


def revealed_records(
    mesh: MeshView, stored: list[Stored], enough: int | None = None
) -> Generator[Command, Any, list[Revealed]]:
    """The records as the client may see them, up to about so many bytes."""
    memory, principals = mesh.memory, principals_of(mesh)
    known = [names for each in stored if (names := memory.keys_read.get(each.topic, mesh.now)) is not None]
    wanted: frozenset[Wrapped | bytes] = frozenset().union(*known)
    reason = f"the records need more than {MOST_DATA_KEYS} data keys"
    for _ in range(ROUNDS):
        asked = keys_wanted(wanted)
        found = yield from find_keys(memory.data_keys, asked)
        results = yield from convert(revealed_batches, stored, principals, found.reading, found.schemas, enough)
        if isinstance(results, NotConverted):
            reason = results.reason
            break
        if isinstance(results, list):
            _remember(mesh, stored, asked.reading, asked.schemas)
            _note_awaited(mesh, stored, results, found)
            return results
        wanted |= results
    return [Revealed(b"", each.rules[0].rule_id, reason, for_now=True) for each in stored]


def _note_awaited(mesh: MeshView, stored: list[Stored], results: list[Revealed], found: Found) -> None:
    keys: Iterable[tuple[Wrapped | bytes, object]] = (*found.reading.items(), *found.schemas.items())
    away = frozenset(name for name, key in keys if isinstance(key, NoKey) and not key.is_gone)
    for each, result in zip(stored, results, strict=True):
        if result.for_now and away:
            mesh.memory.keys_awaited.put(each.topic, away, mesh.now)


def _remember(mesh: MeshView, stored: list[Stored], used: frozenset[Wrapped], prefixes: frozenset[bytes]) -> None:
    if not used and not prefixes:
        return
    for each in stored:
        key_ids = {rule.key_id for rule in each.rules}
        names = sorted(name for name in used if name.key_id in key_ids)
        guess = frozenset[Wrapped | bytes]((*names[-MOST_GUESSED:], *sorted(prefixes)[-MOST_GUESSED:]))
        mesh.memory.keys_read.put(each.topic, guess, mesh.now)
