"""Each anomaly is found where it is planted, with the operations that show it, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from judge.anomalies import RULES, judged
from judge.anomalies.unmarked import unmarked
from judge.history import Kind, Moved, Operation, Outcome, Place, Poll, Send, history, read
from judge.report import Report
from judge.shrinking import Shrinking
from tests.judge.planted import INNOCENT, LOG, OTHER, PLANTED, Story


def test_every_rule_has_its_planted_history() -> None:
    assert {rule.name for rule in RULES} == set(PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_found(name: str) -> None:
    found = {anomaly.rule: anomaly for anomaly in judged(PLANTED[name].told)}
    assert name in found, found
    assert found[name].operations
    assert found[name].text


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_found_among_much_else_and_the_rest_is_left_out(name: str) -> None:
    story = PLANTED[name].told
    noise = Story()
    for number in range(60):
        noise.send(1000 + number, number, place=_elsewhere(number % 3), process=f"noise-{number % 3}")
    shifted = [_shifted(each, 1000) for each in noise.told.operations]
    whole = type(story)((*story.operations, *shifted))
    anomaly = next(each for each in judged(whole) if each.rule == name)
    witness = Shrinking(whole).shrunk(anomaly)
    assert {each.index for each in witness.operations} <= {each.index for each in story.operations}


@pytest.mark.parametrize("lost", [OTHER, Place("t", 0)], ids=["in another log", "by another process"])
def test_a_skipped_marker_excuses_the_records_of_its_transaction_alone(lost: Place) -> None:
    """The history's process `a` has the skipped marker, in one log."""
    process = "a" if lost == OTHER else "b"
    story = INNOCENT["a commit without effect, whose marker Kafka skipped"].told
    sent = Operation(90, process, Kind.TXN, Outcome.OK, 0.0, 1.0, (Send(lost, 77, 5),))
    swept = Operation(91, "sweep", Kind.SWEEP, Outcome.OK, 90.0, 91.0, (Poll(lost, ()),))
    found = [each for each in judged(history((*story.operations, sent, swept))) if not each.allowed]
    assert [each.key for each in found if each.rule == "unseen"] == ["77"]


def test_attempts_that_reached_no_partition_do_not_hide_the_transaction_whose_marker_was_skipped() -> None:
    story = Story().add(Kind.TXN, Send(LOG, 1, 0), at=(0.0, 0.1))
    for value in range(10, 30):
        story.add(Kind.TXN, Send(LOG, value, None), outcome=Outcome.FAIL, at=(0.2, 0.3))
    story.add(Kind.UNMARKED, Poll(LOG, ()), process="kafka-c1-1", note="a", at=(0.9, 0.9))
    assert unmarked(story.told) == {1}


@pytest.mark.parametrize(("client", "moved"), [("own", (11, 16)), ("librdkafka", (5, 14))])
def test_a_reader_that_goes_back_is_found_soon_after_a_move_too(client: str, moved: tuple[float, float]) -> None:
    """The judge's own client keeps nothing back, and a library keeps nothing back for long."""
    story = Story().send(1, 0).add(Kind.MOVE, Moved("t", "c2"), at=moved)
    story.poll((0, 1), client=client).poll((0, 1), client=client)
    assert [each.rule for each in judged(story.told) if not each.allowed] == ["nonmonotonic-poll"]


@pytest.mark.parametrize("aborted", [False, True], ids=["skipped", "aborted there"])
def test_a_reader_that_read_before_and_after_a_part_has_torn_the_transaction_too(aborted: bool) -> None:
    """The part lies on another cluster. If it was aborted there, no sweep finds it."""
    here, there, anywhere = Place("t", 0, "c1"), Place("u", 0, "c2"), Place("u", 0)
    story = Story().send(3, 0, anywhere).send(4, 2, anywhere)
    story.add(Kind.TXN, Send(Place("t", 0), 1, 0), Send(anywhere, 2, 1), outcome=Outcome.INFO, process="txn")
    story.poll((0, 1)).poll((0, 3), place=anywhere).poll((2, 4), place=anywhere)
    story.sweep((0, 1), place=here).sweep((0, 3), *(() if aborted else ((1, 2),)), (2, 4), place=there)
    assert "torn-read" in {each.rule for each in judged(story.told)}


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_history_is_clean(name: str) -> None:
    assert [each for each in judged(INNOCENT[name].told) if not each.allowed] == []


def test_a_history_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    for name, story in {**PLANTED, **INNOCENT}.items():
        path = tmp_path / f"{name}.jsonl"
        story.told.write(path)
        assert read(path) == story.told


def test_a_failure_in_words_names_the_finding_its_operations_and_the_fault_near_them() -> None:
    story = Story().add(Kind.FAULT, process="nemesis", note="freeze kafka-c1-1", at=(9, 12)).told
    sent = (
        Story()
        .send(0, 0)
        .send(7, 3, outcome=Outcome.FAIL, via="127.0.0.1:9092", note="refused")
        .poll((0, 0), (3, 7))
        .told
    )
    story = history((*story.operations, *(replace(each, index=each.index + 1) for each in sent.operations)))
    words = Report(story, tuple(judged(story))).failures()
    assert words.startswith("G1a, 1 times\n  value 7 of t-0")
    for told in (
        "send fail, 10.000 s to 11.000 s, through 127.0.0.1:9092; refused",
        "poll t-0 [0:0, 3:7]",
        "freeze kafka",
    ):
        assert told in words


def _elsewhere(number: int) -> Place:
    return Place("noise", number)


def _shifted(operation: Operation, by: int) -> Operation:
    return replace(operation, index=operation.index + by, start=operation.start + by, end=operation.end + by)
