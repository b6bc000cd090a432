"""What a router tells of its record rules."""

from __future__ import annotations

from mesh.rpc import record_rules
from services.router.agents.progress import MOST_IN_REPORT, MOST_PARTITIONS, ProgressBoard, summed
from services.router.forwarding.orders import Progress


def progress(rule_id: str = "m", *behind: int) -> record_rules.RecordRuleProgress:
    """A rule whose partitions are so many records behind."""
    partitions = [
        record_rules.PartitionProgress(topic="t", partition=number, position=100, end=100 + lag)
        for number, lag in enumerate(behind)
    ]
    return record_rules.RecordRuleProgress(record_rule_id=rule_id, partitions=partitions)


def board() -> ProgressBoard:
    return ProgressBoard(lambda: 1.0)


def test_lag_is_the_sum_over_all_partitions() -> None:
    said = summed(progress("m", 5, 0, 7))
    assert (said.lag, said.partition_count) == (12, 3)


def test_of_many_partitions_those_furthest_behind_are_told() -> None:
    known = board()
    known.heard(Progress(progress("m", *range(MOST_PARTITIONS + 50))))
    [said] = known.shown({"m"})
    assert len(said.partitions) == MOST_PARTITIONS
    assert said.partitions[0].partition == 50
    assert (said.partition_count, said.lag) == (MOST_PARTITIONS + 50, sum(range(MOST_PARTITIONS + 50)))


def test_a_report_has_a_bound_over_all_rules() -> None:
    known = board()
    rules = {f"rule-{number}" for number in range(20)}
    for rule_id in rules:
        known.heard(Progress(progress(rule_id, *range(MOST_PARTITIONS))))
    shown = known.shown(rules)
    assert sum(len(each.partitions) for each in shown) == MOST_IN_REPORT
    assert {each.partition_count for each in shown} == {MOST_PARTITIONS}


def test_a_rule_that_the_worker_has_not_spoken_of_says_why() -> None:
    [shown] = board().shown({"m"})
    assert (shown.record_rule_id, shown.problem) == ("m", "the router's worker process starts")


def test_when_the_process_ends_its_rules_say_so() -> None:
    known = board()
    known.heard(Progress(progress("m", 3)))
    known.stumbled("the router's worker process ended (exit -9)")
    assert [each.problem for each in known.shown({"m", "n"})] == ["the router's worker process ended (exit -9)"] * 2


def test_control_hears_of_changes_only() -> None:
    known = board()
    known.heard(Progress(progress("m", 3)))
    assert known.look({"m"})
    known.heard(Progress(progress("m", 3)))
    assert not known.look({"m"})
    known.heard(Progress(progress("m", 2)))
    assert known.look({"m"})
    assert known.look(set())
    assert known.shown({"m"})[0].problem == "the router's worker process starts"
