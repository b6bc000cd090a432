"""How far record rules are, and who says so."""

from __future__ import annotations

from mesh.rpc import record_rules
from services.control.decisions.records.progress import EXPIRY, RecordProgress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def said(rule_id: str, written: int, problem: str = "") -> record_rules.RecordRuleProgress:
    return record_rules.RecordRuleProgress(record_rule_id=rule_id, records_written=written, problem=problem)


def progress(clock: Clock | None = None) -> RecordProgress:
    return RecordProgress(lambda: {"m", "n"}, clock or Clock())


def test_the_last_word_counts_and_says_who_spoke() -> None:
    known = progress()
    known.report("s1", "r1", [said("m", 5)])
    known.report("s1", "r1", [said("m", 9)])
    last = known.of("m")
    assert last is not None
    assert (last.records_written, last.router, last.problem) == (9, "members/r1", "")
    assert last.HasField("report_time")


def test_a_rule_that_nobody_spoke_of_has_none_and_an_unknown_one_is_not_kept() -> None:
    known = progress()
    known.report("s1", "r1", [said("gone", 5)])
    assert known.of("m") is None
    assert known.of("gone") is None


def test_two_routers_that_claim_one_rule_are_named() -> None:
    known = progress()
    known.report("s1", "r1", [said("m", 5)])
    known.report("s2", "r2", [said("m", 7)])
    last = known.of("m")
    assert last is not None
    assert last.records_written == 7
    assert last.problem.startswith("members/r1 and members/r2 both say")


def test_a_rule_whose_router_left_says_so_until_another_one_takes_it() -> None:
    known = progress()
    known.report("s1", "r1", [said("m", 5)])
    known.left("s1")
    last = known.of("m")
    assert last is not None
    assert (last.records_written, last.problem) == (5, "no router says that it runs it; the last one was members/r1")
    known.report("s2", "r2", [said("m", 6)])
    taken = known.of("m")
    assert taken is not None
    assert (taken.router, taken.problem) == ("members/r2", "")


def test_a_router_that_fell_silent_runs_nothing() -> None:
    clock = Clock()
    known = progress(clock)
    known.report("s1", "r1", [said("m", 5, "cluster c2 does not answer")])
    clock.now += EXPIRY + 1
    last = known.of("m")
    assert last is not None
    assert last.problem.startswith("no router")
    paused = known.of("m", paused=True)
    assert paused is not None
    assert paused.problem == "cluster c2 does not answer"
