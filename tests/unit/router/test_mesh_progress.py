"""What a router knows of the record rules of the others, from the words on the topic of progress."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import REGISTRY

from mesh.rpc import record_rules
from services.router.agents.mesh_progress import MeshProgress, words_of
from services.router.agents.progress import ProgressBoard
from tests.unit.router.test_record_progress import progress

LAG = "kafka_mesh_router_mesh_record_rule_lag_records"


class Clock:
    now = 1.0

    def __call__(self) -> float:
        return self.now


def view(*known: str, router: str = "r1", clock: Clock | None = None) -> MeshProgress:
    return MeshProgress(router, lambda: known, clock or Clock())


def hear(heard: MeshProgress, router: str, *said: record_rules.RecordRuleProgress) -> None:
    for _, value in words_of(router, said):
        heard.hear(value)


def lags() -> dict[tuple[str, str], float]:
    [metric] = [each for each in REGISTRY.collect() if each.name == LAG]
    return {(each.labels["rule"], each.labels["router"]): each.value for each in metric.samples}


def keys(words: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    return [key for key, _ in words]


def behind(rule_id: str, lag: int) -> record_rules.RecordRuleProgress:
    said = progress(rule_id, lag)
    said.lag, said.partition_count = lag, 1
    return said


def test_a_word_has_sums_and_no_partitions() -> None:
    heard = view("m")
    hear(heard, "r2", behind("m", 7))
    word = heard.of("m")
    assert word is not None
    assert (word.router, word.lag, word.partition_count, len(word.partitions)) == ("members/r2", 7, 1, 0)
    assert word.HasField("report_time")


def test_each_rule_and_each_router_has_a_key_which_the_last_word_takes() -> None:
    assert keys(words_of("r1", [behind("m", 1), behind("n", 2)])) == [b"router/r1", b"rule/m", b"rule/n"]


def test_the_last_word_counts_whoever_says_it() -> None:
    heard = view("m")
    hear(heard, "r1", behind("m", 9))
    hear(heard, "r2", behind("m", 3))
    word = heard.of("m")
    assert word is not None
    assert (word.router, word.lag) == ("members/r2", 3)


def test_rules_that_are_no_more_are_forgotten_and_measured_no_more() -> None:
    known = ["m", "n"]
    heard = MeshProgress("r1", lambda: known, Clock())
    hear(heard, "r2", behind("m", 3), behind("n", 4), behind("unknown", 5))
    heard.measure()
    assert lags() == {("m", "members/r2"): 3, ("n", "members/r2"): 4}
    known.remove("m")
    hear(heard, "r3", behind("n", 1))
    heard.measure()
    assert lags() == {("n", "members/r3"): 1}
    assert heard.of("m") is None
    known.clear()
    heard.measure()
    assert lags() == {}


def test_what_is_no_word_is_passed_over() -> None:
    heard = view("m")
    heard.hear(None)
    heard.hear(b"\xff\xff\xff")
    assert heard.of("m") is None


def test_a_router_notices_that_it_is_heard_also_when_it_runs_nothing() -> None:
    clock = Clock()
    heard = view("m", clock=clock)
    clock.now = 5.0
    hear(heard, "r2", behind("m", 1))
    assert heard.heard_itself_at == 1.0
    hear(heard, "r1")
    assert heard.heard_itself_at == 5.0


def test_a_rule_that_another_router_ran_is_as_far_as_that_one_said_until_the_worker_speaks() -> None:
    heard = view("m")
    hear(heard, "r2", behind("m", 7))
    board = ProgressBoard(Clock(), heard.of)
    [shown] = board.shown({"m"})
    assert (shown.lag, shown.problem) == (7, "the router's worker process starts")
    assert board.spoken({"m"}) == []
    word = heard.of("m")
    assert word is not None
    assert not word.problem, "the view keeps what was said"
