"""Batches with rules of validation and protection: opened once, checked in the clear, marked, protected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mesh.compression import Allowance, Codec, compress
from mesh.protection.fields import Content as Protected
from mesh.protection.keys import DataKey, NoKey, Wrapped
from mesh.protection.policy import Policy as ProtectionPolicy
from mesh.protection.records import Revealing
from mesh.protection.rule import Rule as ProtectionRule
from mesh.schemas.framing import prefix_of
from mesh.schemas.schema import RegisteredSchema, SchemaKind
from mesh.validation import Compression, Content, Mode, Policy, Rule, ValueSchema
from services.gateway.requests.auditing.invalid import InvalidBatch
from services.gateway.requests.conversions import NotConverted
from services.gateway.requests.data_keys import Found, LatestOf, SchemaOf, Wanted
from services.gateway.requests.plan import Call, RawResponse, Verbatim
from services.gateway.requests.records import content_checks, record_checks
from services.gateway.requests.records.opened_batches import MARK, Opened, Written, opened_batches
from services.gateway.requests.records.produce import handle
from services.gateway.wire.batches import batches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import parse_request_header
from services.gateway.wire.record_bodies import read_body
from services.gateway.wire.record_editing import Part, parts
from services.gateway.wire.scanner import scan_produce
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records.test_produce import VERSION, errors, play, raw, request
from tests.unit.gateway.requests.test_auditing import record
from tests.unit.gateway.wire.records import batch

KEY = DataKey(Wrapped("k", b"wrapped"), b"s" * 32)
SECRET = ProtectionRule("secret", "apples", key_id="k", readers=("User:crm",))
ORDER = '{"type": "object", "required": ["id"]}'
GIVEN = Rule("given", "apples", content=Content.GIVEN, content_schema=ORDER)
NAMED = Rule("named", "apples", content=Content.NAMED)
LATEST = Rule("latest", "apples", content=Content.SUBJECT, content_schema="orders")
GOOD, BAD = b'{"id": 1}', b'{"card": "4111"}'
AWAY, GONE = NoKey("the registry is away", is_gone=False), NoKey("the registry has no schema 9", is_gone=True)


@dataclass
class Ring:
    """A ring by hand: schema 7 and the latest of "orders" are JSON Schemas."""

    fault: NoKey | None = None
    kind: SchemaKind = SchemaKind.JSON
    asked: list[Wanted] = field(default_factory=list)

    def find(self, wanted: Wanted, done: Callable[[Found], None]) -> None:
        self.asked.append(wanted)
        schema = RegisteredSchema(7, self.kind, ORDER)
        known: dict[bytes, RegisteredSchema | NoKey] = {prefix_of(7): schema}
        done(
            Found(
                dict.fromkeys(wanted.writing, KEY),
                schemas={each: self.fault or known.get(each, GONE) for each in wanted.schemas},
                registered=dict.fromkeys(wanted.registered, self.fault),
                latest={each: self.fault or replace(schema, subject="orders", version=3) for each in wanted.latest},
            )
        )


@dataclass
class House:
    rules: tuple[Rule, ...] = ()
    protects: tuple[ProtectionRule, ...] = ()
    ring: Ring = field(default_factory=Ring)
    told: list[InvalidBatch] = field(default_factory=list)
    world: World = field(default_factory=lambda: World({"c1": ["apples", "pears"]}, partitions=2))

    def __post_init__(self) -> None:
        memory = self.world.memory
        memory.validation, memory.protection = Policy(self.rules), ProtectionPolicy(self.protects)
        memory.data_keys, memory.on_invalid = self.ring, self.told.append

    def play(self, data: bytes, topic: str = "apples") -> Playbook:
        return play(self.world, request((topic, 0, data)))

    def stored(self, data: bytes) -> list[Part]:
        """The records as the cluster gets them."""
        (call,) = self.play(data).asked()
        return read(carried(call))

    def refused(self, data: bytes, code: int = ErrorCode.INVALID_RECORD) -> str:
        book = self.play(data)
        assert errors(book) == [("apples", 0, code)]
        return book.answer.responses[0].partition_responses[0].error_message or ""


def carried(call: Call) -> bytes:
    """The records of the one partition that a call carries."""
    assert isinstance(call.message, Verbatim)
    frame = call.message.frame
    header = parse_request_header(frame, 4, len(frame))
    scan = scan_produce(frame, VERSION, header.body_offset, len(frame))
    ((part,),) = (topic.partitions for topic in scan.topics)
    return bytes(frame[part.records_start : part.records_end])


def of(*values: bytes | None, codec: Codec = Codec.NONE, headers: Any = (), **fields: int) -> bytes:
    body = b"".join(record(number, b"k", value, list(headers)) for number, value in enumerate(values))
    return bytes(batch(compress(codec, body), count=len(values), attributes=codec, **fields))


def read(records: bytes) -> list[Part]:
    (header,) = batches(records, 0, len(records))
    return list(parts(read_body(records, header, Allowance(10**7)), header.record_count))


def opened(data: bytes, *rules: Rule, found: Found | None = None) -> Opened:
    results = opened_batches([Written("apples", data, rules)], found or Found())
    assert isinstance(results, list)
    return results[0]


def test_json_without_a_name_of_its_schema_is_checked_and_the_answer_names_the_record_and_no_value() -> None:
    house = House((GIVEN,))
    assert [part.value for part in house.stored(of(GOOD, None))] == [GOOD, None], "a tombstone has no content"
    reason = house.refused(of(GOOD, BAD, codec=Codec.ZSTD))
    assert reason == (
        'record 1: the value is not valid by the rule\'s schema: # does not keep to required "id" '
        "(rule 'given' of the mesh)"
    )
    assert house.ring.asked == [Wanted(), Wanted()], "nothing is asked for"


def test_a_value_is_valid_by_the_schema_that_it_names_and_what_is_known_is_given_along_at_once() -> None:
    house = House((NAMED,))
    framed = prefix_of(7) + GOOD
    assert [part.value for part in house.stored(of(framed))] == [framed]
    named = Wanted(schemas=frozenset([prefix_of(7)]))
    assert house.ring.asked == [Wanted(), named]
    assert "schema 7: # does not keep to required" in house.refused(of(prefix_of(7) + BAD))
    assert house.ring.asked == [Wanted(), named, named], "one question, and one opening"
    assert "the registry has no schema 9" in house.refused(of(prefix_of(9) + GOOD))
    bare = house.refused(of(b"4111 bare"))
    assert "the value names no schema" in bare
    assert "4111" not in bare
    assert b"4111".hex(" ") not in bare
    in_header = of(GOOD, headers=[("__value_schema_id", prefix_of(7))])
    assert len(house.stored(in_header)) == 1


def test_a_key_is_valid_by_the_schema_that_it_names() -> None:
    house = House((Rule("key", "apples", key_by_named_schema=True),))

    def keyed(key: bytes | None, headers: Any = ()) -> bytes:
        return bytes(batch(record(0, key, b"anything", list(headers)), count=1))

    stored = [keyed(prefix_of(7) + GOOD), keyed(GOOD, [("__key_schema_id", prefix_of(7))]), keyed(None)]
    assert [house.stored(each) for each in stored] == [read(each) for each in stored]
    reason = house.refused(keyed(prefix_of(7) + BAD))
    assert reason.startswith('record 0: the key is not valid by schema 7: # does not keep to required "id"')
    assert "the key names no schema" in house.refused(keyed(GOOD))
    assert "the registry has no schema 9" in house.refused(keyed(prefix_of(9) + GOOD))


def test_the_latest_schema_of_a_subject_counts_and_has_to_be_json_schema() -> None:
    house = House((LATEST,))
    assert len(house.stored(of(GOOD))) == 1
    assert house.ring.asked == [Wanted(latest=frozenset([LatestOf("orders")]))]
    assert "version 3 of subject 'orders': # does not keep to required" in house.refused(of(BAD))
    assert "it is no JSON" in house.refused(of(prefix_of(7) + GOOD))
    house.ring.kind = SchemaKind.AVRO
    assert "subject 'orders' is AVRO" in house.refused(of(GOOD))


@pytest.mark.parametrize("rule", [NAMED, LATEST, replace(NAMED, value_schema=ValueSchema.ANY)])
def test_while_the_registry_is_away_a_batch_waits_or_passes_as_the_rule_says(rule: Rule) -> None:
    data = of(prefix_of(7) + GOOD)
    house = House((rule,), ring=Ring(AWAY))
    house.refused(data, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not house.told
    for passing in (replace(rule, stores_unchecked=True), replace(rule, mode=Mode.OBSERVE)):
        assert len(House((passing,), ring=Ring(AWAY)).stored(data)) == 1
    (marked,) = House((replace(rule, mode=Mode.MARK),), ring=Ring(AWAY)).stored(data)
    assert b"the value is not checked: the registry is away" in (dict(marked.headers)[MARK] or b"")


def test_a_schema_condition_and_content_are_asked_for_together() -> None:
    house = House((replace(NAMED, value_schema=ValueSchema.SUBJECT),))
    assert len(house.stored(of(prefix_of(7) + GOOD))) == 1
    question = SchemaOf(prefix_of(7), "apples-value")
    assert house.ring.asked[1] == Wanted(schemas=frozenset([prefix_of(7)]), registered=frozenset([question]))


def test_a_topic_with_both_kinds_of_rules_is_opened_once_and_its_clear_values_are_checked() -> None:
    house = House((GIVEN,), (SECRET,))
    book = house.play(of(GOOD, codec=Codec.GZIP))
    (call,) = book.asked()
    (part,) = read(carried(call))
    assert part.value is not None and GOOD not in part.value
    revealing = Revealing("apples", (SECRET,), ("User:crm",), {KEY.name: KEY.secret})
    assert revealing.revealed(Protected(part.value, part.headers)).value == GOOD
    assert house.ring.asked == [Wanted(frozenset(["k"]))], "keys are asked for once"
    assert "not valid by the rule's schema" in house.refused(of(GOOD, BAD))


def test_an_observed_breach_is_told_and_the_batch_is_protected_all_the_same() -> None:
    house = House((replace(GIVEN, mode=Mode.OBSERVE),), (SECRET,))
    (part,) = house.stored(of(BAD))
    assert part.value is not None and BAD not in part.value
    assert [each.enforced for each in house.told] == [False]


def test_records_that_break_a_rule_which_marks_are_stored_with_the_reason_and_the_others_as_they_came() -> None:
    house = House((replace(GIVEN, mode=Mode.MARK),))
    good, bad = house.stored(of(GOOD, BAD, codec=Codec.LZ4, headers=[("trace", b"1")]))
    assert (good.value, good.headers) == (GOOD, [(b"trace", b"1")])
    assert (bad.value, bad.headers[0]) == (BAD, (b"trace", b"1"))
    assert bad.headers[1][0] == MARK
    assert b"does not keep to required" in (bad.headers[1][1] or b"")
    assert [each.enforced for each in house.told] == [False]


def test_a_batch_that_breaks_a_rule_which_marks_has_the_reason_in_all_its_records() -> None:
    rule = Rule("zstd", "apples", mode=Mode.MARK, compression_types=(Compression.ZSTD,))
    house = House((rule,))
    assert [dict(part.headers)[MARK] for part in house.stored(of(GOOD, BAD))] == [
        b"compression.type is none, and has to be zstd (rule 'zstd' of the mesh)"
    ] * 2
    untouched = of(GOOD, codec=Codec.ZSTD)
    (call,) = house.play(untouched).asked()
    assert carried(call) == untouched


def test_a_batch_that_is_marked_and_refused_by_another_rule_is_refused() -> None:
    house = House((replace(GIVEN, rule_id="a", mode=Mode.MARK), Rule("b", "apples", max_record_bytes=1)))
    assert "record 0: the record has" in house.refused(of(BAD))


def test_checks_that_take_too_long_refuse_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_checks, "CHECK_S", -1.0)
    (breach,) = opened(of(GOOD, GOOD), GIVEN).breaches
    assert "the checks of the request take more than" in breach.reason


def test_a_schema_that_can_not_be_used_is_not_compiled_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[RegisteredSchema] = []

    def check_of(schema: RegisteredSchema) -> content_checks.Check:
        made.append(schema)
        return content_checks.check_of(schema)

    monkeypatch.setattr(record_checks, "check_of", check_of)
    text = '{"pattern": "(?=never)"}'
    for _ in range(3):
        found = Found(schemas={prefix_of(8): RegisteredSchema(8, SchemaKind.JSON, text)})
        (breach,) = opened(of(prefix_of(8) + GOOD, prefix_of(8) + GOOD), NAMED, found=found).breaches
        assert "the schema of the value can't be used: no JSON Schema: #/pattern" in breach.reason
    assert len(made) == 1


def test_a_batch_that_is_observed_alone_is_sent_if_nobody_had_time_to_open_it() -> None:
    for mode, is_sent in ((Mode.OBSERVE, True), (Mode.ENFORCE, False), (Mode.MARK, False)):
        house = House((replace(GIVEN, mode=mode),))
        frame = request(("apples", 0, of(GOOD)))
        book = Playbook(handle, frame, VERSION, house.world.view(), not_converted=NotConverted("no time"))
        if is_sent:
            book.answered(raw(("apples", 0, 0)))
            assert isinstance(book.answer, RawResponse)
        else:
            assert errors(book) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
