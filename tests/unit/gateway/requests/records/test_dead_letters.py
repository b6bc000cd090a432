"""Refused records become dead letters before their client hears of the refusal, or come again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from mesh.compression import Codec
from mesh.protection.rule import Rule as ProtectionRule
from mesh.validation import Compression, Rule
from services.gateway.requests.conversions import NotConverted
from services.gateway.requests.plan import Call, RawResponse, Unreachable, Verbatim
from services.gateway.requests.records.opened_batches import MARK, ORIGIN
from services.gateway.requests.records.produce import handle
from services.gateway.requests.records.record_checks import MOST_TOLD
from services.gateway.wire.batches import batches
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, parse_request_header
from services.gateway.wire.messages.produce import ProduceRequest
from services.gateway.wire.record_editing import Part
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records.test_opening import BAD, GIVEN, GOOD, SECRET, House, of, read
from tests.unit.gateway.requests.records.test_produce import VERSION, errors, raw, request

TO_LETTERS = replace(GIVEN, dead_letter_topic="letters")
ZSTD = Rule("zstd", "apples", compression_types=(Compression.ZSTD,), dead_letter_topic="letters")


def house(*rules: Rule, protects: tuple[ProtectionRule, ...] = ()) -> House:
    return House(rules, protects, world=World({"c1": ["apples", "letters"]}, partitions=2))


def letters_in(call: Call) -> tuple[ProduceRequest, bytes]:
    """The Produce of dead letters, and its batch."""
    assert isinstance(call.message, Verbatim)
    frame = call.message.frame
    body_offset = parse_request_header(frame, SIZE_BYTES, len(frame)).body_offset
    message = decode(ProduceRequest, call.version, frame[body_offset:])
    (topic,) = message.topic_data
    assert topic.name == "letters"
    return message, bytes(topic.partition_data[0].records or b"")


def kept(code: int = 0) -> RawResponse:
    """The broker's answer about dead letters."""
    return raw(("letters", 0, code))


def facts(part: Part) -> tuple[bytes | None, bytes | None, dict[bytes, bytes | None]]:
    return part.key, part.value, dict(part.headers)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_records_that_break_the_rule_are_written_with_origin_and_reason_and_then_the_client_hears(
    codec: Codec,
) -> None:
    book = house(TO_LETTERS).play(of(GOOD, BAD, None, BAD, codec=codec, headers=[("trace", b"1")]))
    (call,) = book.asked()
    message, records = letters_in(call)
    assert (message.acks, message.transactional_id) == (-1, None)
    (header,) = batches(records, 0, len(records))
    assert (header.is_idempotent, header.record_count, header.last_offset_delta) == (False, 2, 1)
    first, second = read(records)
    key, value, headers = facts(first)
    assert (key, value, headers[b"trace"], headers[ORIGIN]) == (b"k", BAD, b"1", b"apples")
    assert b"does not keep to required" in (headers[MARK] or b"")
    assert second.value == BAD
    book.answered(kept())
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD)]


def test_all_refused_records_are_written_also_those_that_no_answer_names() -> None:
    book = house(TO_LETTERS).play(of(*[BAD] * (MOST_TOLD + 5)))
    _, records = letters_in(book.asked()[0])
    assert len(read(records)) == MOST_TOLD + 5


def test_all_records_of_a_batch_that_breaks_the_rule_as_a_whole_are_written() -> None:
    book = house(ZSTD).play(of(GOOD, None))
    _, records = letters_in(book.asked()[0])
    assert [(part.value, dict(part.headers)[ORIGIN]) for part in read(records)] == [
        (GOOD, b"apples"),
        (None, b"apples"),
    ]
    book.answered(kept())
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD)]


@pytest.mark.parametrize("rule", [TO_LETTERS, ZSTD])
def test_if_dead_letters_can_not_be_written_the_batch_has_to_come_again(rule: Rule) -> None:
    for answer in (kept(ErrorCode.TOPIC_AUTHORIZATION_FAILED), Unreachable("c1", "gone")):
        book = house(rule).play(of(BAD))
        with capture_logs() as logs:
            book.answered(answer)
        assert errors(book) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        assert [each["event"] for each in logs] == ["dead letters can't be written, and their records come again"]
    busy = house(rule)
    late = Playbook(
        handle, request(("apples", 0, of(BAD))), VERSION, busy.world.view(), not_converted=NotConverted("no time")
    )
    assert errors(late) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_dead_letters_of_a_protected_topic_are_protected_or_not_written() -> None:
    unsafe = house(TO_LETTERS, protects=(SECRET,))
    with capture_logs() as logs:
        assert errors(unsafe.play(of(BAD))) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert "values of topic 'apples' are protected" in logs[0]["reason"]
    safe = house(TO_LETTERS, protects=(SECRET, replace(SECRET, rule_id="letters", name="letters")))
    _, records = letters_in(safe.play(of(BAD)).asked()[0])
    (part,) = read(records)
    assert part.value is not None and BAD not in part.value


@pytest.mark.parametrize(
    ("software", "values", "kept"),
    [("apache-kafka-java", [GOOD, GOOD], False), ("apache-kafka-java", [GOOD], True), ("librdkafka", [GOOD] * 2, True)],
)
def test_a_batch_that_its_client_cuts_into_smaller_ones_has_no_dead_letters(
    software: str, values: list[bytes], kept: bool
) -> None:
    """Otherwise records that are stored from the smaller batches would be dead letters, too."""
    small = house(Rule("small", "apples", max_message_bytes=10, dead_letter_topic="letters"))
    small.world.session.software_name = software
    book = small.play(of(*values))
    if not kept:
        assert errors(book) == [("apples", 0, ErrorCode.MESSAGE_TOO_LARGE)]
        return
    _, records = letters_in(book.asked()[0])
    assert len(read(records)) == len(values)


def test_a_rule_about_the_topic_of_dead_letters_does_not_refuse_them() -> None:
    book = house(TO_LETTERS, replace(GIVEN, rule_id="other", name="letters", dead_letter_topic="apples")).play(of(BAD))
    book.answered(kept())
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD)]
