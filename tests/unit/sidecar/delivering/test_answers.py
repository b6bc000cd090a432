"""What counts as an answer about records, and what is said of one that does not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sidecar.delivering.answers import AnswerError, Said, read_answer
from services.sidecar.delivering.failures import Blame, blame_for, retry_after


def read(told: object, records: int) -> list[Said]:
    return [result.said for result in read_answer(json.dumps(told).encode(), records).results]


@pytest.mark.parametrize("member", ["record", "consumerRecord"])
def test_the_originals_answer(member: str) -> None:
    told = [
        {member: {"offset": 7}, "processed": True, "correlationId": "5Cl", "key": "alice", "timestamp": 1645385332673},
        {member: {"offset": 8}, "processed": False, "stacktrace": "ZeroDivisionError", "correlationId": "x"},
    ]
    answer = read_answer(json.dumps(told).encode(), 2)
    good, bad = answer.results
    assert (good.said, bad.said) == (Said.PROCESSED, Said.NOT_PROCESSED)
    assert (bad.stacktrace, bad.correlation_id) == ("ZeroDivisionError", "x")


def test_a_status_says_more_and_counts_before_processed() -> None:
    told: list[object] = [{"status": word} for word in ("SUCCESS", "RETRY", "DROP", "DEAD_LETTER", "drop")]
    assert read([*told, {"status": "RETRY", "processed": True}], 6) == [
        Said.SUCCESS, Said.RETRY, Said.DROP, Said.DEAD_LETTER, Said.DROP, Said.RETRY,
    ]  # fmt: skip


def test_results_may_stand_in_an_object_beside_what_is_to_be_written() -> None:
    told = {"results": [{"processed": True, "produce": [{"topic": "a"}]}], "produce": [{"topic": "b"}]}
    answer = read_answer(json.dumps(told).encode(), 1)
    assert answer.produce == [{"topic": "b"}]
    assert answer.results[0].produce == [{"topic": "a"}]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "the answer is empty; expected a list of 2 results"),
        (b" \n", "the answer is empty; expected a list of 2 results"),
        (b"<html>", "the answer is not JSON"),
        (b'{"ok":true}', "expected a list of 2 results, or one as 'results'; found: object"),
        (b"null", "expected a list of 2 results, or one as 'results'; found: null"),
        (b"[]", "expected 2 results, one for each record in its order; found: 0"),
        (b'[{"processed":true}]', "expected 2 results, one for each record in its order; found: 1"),
        (b'[{"processed":true},1]', "result 1: expected an object; found: integer"),
        (b'[{"processed":true},{}]', "result 1: expected 'processed' (true or false) or 'status'"),
        (b'[{"processed":"true"},{}]', "result 0: expected 'processed' (true or false) or 'status'"),
        (b'[{"status":"DONE"},{}]', "result 0: status 'DONE' is none of SUCCESS, RETRY, DROP, DEAD_LETTER"),
        (b'[{"status":1},{}]', "result 0: status 1 is none of"),
        (b'[{"processed":true,"produce":{}},{}]', "result 0: 'produce' is a list of {topic, records}; found: object"),
        (b'{"results":[],"produce":1}', "the answer: 'produce' is a list of {topic, records}; found: integer"),
    ],
)
def test_what_is_no_answer_is_named(body: bytes, complaint: str) -> None:
    with pytest.raises(AnswerError) as refused:
        read_answer(body, 2)
    assert str(refused.value).startswith(complaint)


@given(st.binary(max_size=40) | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
    lambda value: json.dumps(value).encode()
))  # fmt: skip
def test_anything_is_an_answer_or_named(body: bytes) -> None:
    try:
        assert len(read_answer(body, 1).results) == 1
    except AnswerError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("status", "blame"),
    [
        (400, Blame.RECORDS), (413, Blame.RECORDS), (422, Blame.RECORDS), (409, Blame.RECORDS),
        (401, Blame.BACKEND), (405, Blame.BACKEND), (429, Blame.BACKEND), (503, Blame.BACKEND), (302, Blame.BACKEND),
        (403, Blame.UNCLEAR), (404, Blame.UNCLEAR), (408, Blame.UNCLEAR), (500, Blame.UNCLEAR), (502, Blame.UNCLEAR),
        (504, Blame.UNCLEAR),
    ],
)  # fmt: skip
def test_who_may_be_to_blame_for_a_status(status: int, blame: Blame) -> None:
    assert blame_for(status) is blame


NOON = 1_445_428_800.0
"""Wed, 21 Oct 2015 12:00:00 GMT."""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Wed, 21 Oct 2015 12:00:30 GMT", 30.0),
        ("Wed, 21 Oct 2015 11:00:00 GMT", 0.0),
        ("99999999999999999999", 999_999_999.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("Wed, 21 Oct 2015 12:00:00 +99999999999999999", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert retry_after(text, NOON) == seconds


@given(st.text(max_size=40))
def test_whatever_retry_after_says_it_is_a_time_or_nothing(text: str) -> None:
    seconds = retry_after(text, NOON)
    assert seconds is None or seconds >= 0
