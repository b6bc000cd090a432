"""What a dead letter carries, and what it becomes again."""

from typing import Any

import pytest

from services.sidecar.dead_letters.record import (
    MAX_STACK_TRACE_BYTES,
    ORIGIN_HEADERS,
    SHORT_STACK_TRACE_BYTES,
    Origin,
    dead_letter,
    dead_letter_topic,
    original,
    source_topic,
)
from services.sidecar.delivering.batch import ReplyRecord
from services.sidecar.delivering.writing import size_of
from services.sidecar.records import Outcome, RawRecord, Reason, Verdict

EXTENSION = ".dlq"


def record(*headers: tuple[str, bytes | None], **facts: Any) -> RawRecord:
    given = {"topic": "orders", "partition": 2, "offset": 41, "timestamp": 1_700_000_000_000}
    return RawRecord(**{**given, "key": b"bob\xff", "value": b"\x00\x01", "headers": list(headers), **facts})


def failed(raw: RawRecord, **facts: Any) -> Verdict:
    return Verdict(raw, Outcome.DEAD_LETTER, **{"reason": Reason.BACKEND, **facts})


def written(verdict: Verdict) -> RawRecord:
    """The dead letter, as it is read again."""
    topic, outgoing = (letter := dead_letter(verdict, "shop", EXTENSION)).topic, letter.record
    headers: Any = outgoing.headers
    return RawRecord(topic, 0, 7, outgoing.timestamp, outgoing.key, outgoing.value, headers)


def test_a_dead_letter_has_the_bytes_the_key_and_the_headers_of_what_failed_and_the_time_of_the_failure() -> None:
    letter = dead_letter(failed(record(("a", b"1"), ("a", b"\xff"), ("none", None))), "shop", EXTENSION)
    assert letter.topic == "orders.dlq"
    assert (letter.record.key, letter.record.value, letter.record.timestamp) == (b"bob\xff", b"\0\1", 0)
    assert letter.record.headers[:3] == [("a", b"1"), ("a", b"\xff"), ("none", None)]


def test_it_goes_to_a_partition_by_its_key_as_all_of_that_topic_do() -> None:
    assert dead_letter(failed(record()), "shop", EXTENSION).record.partition is None


def test_it_says_where_it_came_from_and_why() -> None:
    verdict = failed(record(), reason=Reason.RETRIES, attempts=4, first_failure=1_700_000_000_500, stacktrace="boom")
    assert Origin.of(written(verdict).headers) == Origin(
        topic="orders",
        partition=2,
        offset=41,
        timestamp=1_700_000_000_000,
        group="shop",
        reason="retries",
        attempts=4,
        first_failure=1_700_000_000_500,
        stacktrace="boom",
    )


def test_ids_and_stack_trace_have_the_originals_names_and_come_first() -> None:
    verdict = failed(record(("a", b"1")), correlation_id="c", traceability_id="t", stacktrace="boom")
    assert dead_letter(verdict, "shop", EXTENSION).record.headers[:4] == [
        ("X-Correlation-Id", b"c"),
        ("X-Traceability-Id", b"t"),
        ("StackTrace", b"boom"),
        ("a", b"1"),
    ]


def test_ids_that_the_record_has_itself_stay_as_they_are() -> None:
    verdict = failed(record(("x-correlation-id", b"own")), correlation_id="of the answer")
    names = [name for name, _ in dead_letter(verdict, "shop", EXTENSION).record.headers]
    assert names[0] == "x-correlation-id"
    assert "X-Correlation-Id" not in names


def test_a_record_that_never_reached_the_backend_has_no_first_failure() -> None:
    verdict = failed(record(), reason=Reason.DESERIALIZATION, attempts=0)
    assert Origin.of(written(verdict).headers).first_failure is None


@pytest.mark.parametrize("facts", [{"key": None}, {"value": None}, {"key": None, "value": None}])
def test_null_keys_and_tombstones_stay_null(facts: dict[str, None]) -> None:
    letter = dead_letter(failed(record(**facts)), "shop", EXTENSION).record
    assert all(getattr(letter, name) is None for name in facts)


def test_a_dead_letter_that_fails_again_stays_where_it_is_and_keeps_its_first_origin() -> None:
    first = written(failed(record(("a", b"1")), attempts=4, first_failure=5, stacktrace="boom"))
    again = written(failed(first, reason=Reason.RETRIES, attempts=1, first_failure=9, stacktrace="bang"))
    assert again.topic == "orders.dlq"
    origin = Origin.of(again.headers)
    assert (origin.topic, origin.partition, origin.offset, origin.first_failure) == ("orders", 2, 41, 5)
    assert (origin.reason, origin.attempts, origin.stacktrace) == ("retries", 1, "bang")
    names = [name for name, _ in again.headers]
    assert len(names) == len(set(names))


def test_only_a_topic_that_ends_so_is_one_of_dead_letters() -> None:
    assert dead_letter_topic("orders.dlq.v2", EXTENSION) == "orders.dlq.v2.dlq"


def test_a_stack_trace_is_cut_and_may_have_any_characters() -> None:
    origin = Origin.of(written(failed(record(), stacktrace="\ud800" + "x" * 2 * MAX_STACK_TRACE_BYTES)).headers)
    assert len(origin.stacktrace) == MAX_STACK_TRACE_BYTES


def test_a_record_without_a_time_gets_that_of_its_writing() -> None:
    assert dead_letter(failed(record(timestamp=-1)), "shop", EXTENSION).record.timestamp == 0


def test_what_goes_back_is_what_failed() -> None:
    was = record(("a", b"1"), ("X-Correlation-Id", b"c"))
    letter = written(failed(was, stacktrace="boom", attempts=4, first_failure=5))
    assert source_topic(letter, EXTENSION) == "orders"
    back = original(letter, "orders")
    assert back.topic == "orders"
    assert back.record == (was.key, was.value, None, was.timestamp, was.headers)


def test_a_dead_letter_of_the_original_sidecar_goes_back_by_the_name_of_its_topic() -> None:
    letter = record(("StackTrace", b"boom"), topic="orders.dlq")
    assert source_topic(letter, EXTENSION) == "orders"
    assert Origin.of(letter.headers) == Origin(stacktrace="boom")


def test_facts_that_are_no_numbers_are_none() -> None:
    assert Origin.of([("dlq.offset", b"soon"), ("dlq.attempts", None)]) == Origin()


def test_it_goes_back_with_the_time_that_the_record_had() -> None:
    letter = written(failed(record(), stacktrace="boom"))._replace(timestamp=1_800_000_000_000)
    assert original(letter, "orders").record.timestamp == 1_700_000_000_000


def test_a_dead_letter_that_is_too_large_gives_up_its_trace_then_its_value_then_all_but_the_facts() -> None:
    verdict = failed(record(("own", b"1")), stacktrace="x" * 1000)
    whole = dead_letter(verdict, "shop", EXTENSION)
    short = smaller(whole)
    assert (len(trace_of(short)), short.record.value) == (SHORT_STACK_TRACE_BYTES, whole.record.value)
    without_value = smaller(short)
    assert (without_value.record.key, without_value.record.value) == (b"bob\xff", None)
    assert dict(without_value.record.headers)["dlq.value.bytes"] == b"2"
    facts = smaller(without_value)
    assert (facts.record.key, facts.record.value, facts.smaller) == (None, None, None)
    assert dict(facts.record.headers)["dlq.key.bytes"] == b"4"
    assert "own" not in dict(facts.record.headers)
    again = RawRecord(facts.topic, 0, 7, 0, None, None, facts.record.headers)  # type: ignore[arg-type]  # all bytes
    assert Origin.of(written(failed(again)).headers).value_bytes == 2


def smaller(letter: ReplyRecord) -> ReplyRecord:
    assert letter.smaller is not None
    made = letter.smaller()
    assert made is not None
    return made


def trace_of(letter: ReplyRecord) -> bytes:
    return dict(letter.record.headers)["StackTrace"]  # type: ignore[return-value]  # bytes


def test_no_header_of_another_writer_makes_the_smallest_form_too_large() -> None:
    """A record may claim an origin of any length, and a backend may answer with ids of any length."""
    claims = [(name, b"x" * 1_000_000) for name in ORIGIN_HEADERS]
    verdict = failed(record(*claims), correlation_id="c" * 1_000_000, traceability_id="t" * 1_000_000)
    letter = dead_letter(verdict, "shop", EXTENSION)
    while letter.smaller is not None:
        letter = smaller(letter)
    assert size_of(letter.record) < 1_000
    assert dict(letter.record.headers)["dlq.topic"] == b"orders"
