"""Where a stream stands, and what is refused rather than skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

from services.pipeline.auditing.data_source import planned_at
from services.pipeline.kafka.position_json import parse, render
from services.pipeline.kafka.positions import (
    PartitionLog,
    Position,
    RecordsLostError,
    Span,
    Stamp,
    TopicLog,
    TopicReplacedError,
    advance,
    as_of,
    fair_shares,
    later_times,
    problems,
    replaced_by_times,
    replaced_topics,
    spans,
)

NOWHERE: Position = {}


def log(*bounds: tuple[int, int], topic_id: str = "id-1") -> TopicLog:
    """A topic whose partitions 0, 1, ... hold these offsets."""
    return TopicLog(topic_id, {number: PartitionLog(*each) for number, each in enumerate(bounds)})


def read(start: Position, end: Position) -> list[Span]:
    return sorted(spans(start, end), key=str)


def test_a_new_topic_is_read_from_the_start_of_its_log() -> None:
    end = advance(NOWHERE, {"apples": log((7, 10), (0, 2))})
    assert read(NOWHERE, end) == [Span("apples", 0, 7, 10), Span("apples", 1, 0, 2)]


def test_the_next_batch_begins_where_the_last_one_ended() -> None:
    first = advance(NOWHERE, {"apples": log((0, 10))})
    second = advance(first, {"apples": log((0, 12))})
    assert read(first, second) == [Span("apples", 0, 10, 12)]


def test_nothing_new_is_the_same_position() -> None:
    first = advance(NOWHERE, {"apples": log((0, 10), (0, 0))})
    again = advance(first, {"apples": log((0, 10), (0, 0))})
    assert render(again) == render(first)


def test_retention_of_what_was_read_is_no_news() -> None:
    first = advance(NOWHERE, {"apples": log((0, 10))})
    assert advance(first, {"apples": log((10, 10))}) is first


def test_a_batch_run_again_from_the_checkpoint_reads_the_same() -> None:
    first = advance(NOWHERE, {"apples": log((3, 10))}, max_rows=5)
    second = advance(first, {"apples": log((3, 10), (0, 4))}, max_rows=4)
    from_checkpoint = parse(render(first)), parse(render(second))
    assert read(*from_checkpoint) == read(first, second) == [Span("apples", 0, 8, 10), Span("apples", 1, 0, 2)]


def test_a_topic_may_join_later_and_be_left_out_for_a_while() -> None:
    apples = advance(NOWHERE, {"apples": log((0, 5))})
    both = advance(apples, {"apples": log((0, 5)), "bananas": log((2, 4))})
    bananas = advance(both, {"bananas": log((2, 6))})
    back = advance(bananas, {"apples": log((0, 9)), "bananas": log((2, 6))})
    assert read(apples, both) == [Span("bananas", 0, 2, 4)]
    assert read(both, bananas) == [Span("bananas", 0, 4, 6)]
    assert read(bananas, back) == [Span("apples", 0, 5, 9)]


def test_a_topic_that_is_left_out_right_after_its_first_batch_is_not_read_again() -> None:
    first = advance(NOWHERE, {"apples": log((0, 5)), "pears": log((0, 5))})
    second = advance(first, {"pears": log((0, 6))})
    assert read(first, second) == [Span("pears", 0, 5, 6)]


def test_an_added_partition_that_lost_its_first_records_is_an_error() -> None:
    first = advance(NOWHERE, {"apples": log((0, 10))})
    with pytest.raises(RecordsLostError, match=r"apples/1 begins at offset 3, the checkpoint stands at 0"):
        advance(first, {"apples": log((0, 10), (3, 4))})


def test_retention_past_the_checkpoint_is_an_error() -> None:
    first = advance(NOWHERE, {"apples": log((0, 10))})
    with pytest.raises(RecordsLostError, match=r"retention took 2 offsets .* --accept-loss"):
        advance(first, {"apples": log((12, 20))})


def test_an_accepted_loss_goes_on_where_the_log_begins() -> None:
    first = advance(NOWHERE, {"apples": log((0, 10))})
    second = advance(first, {"apples": log((12, 20))}, accept_loss=True)
    assert read(first, second) == [Span("apples", 0, 12, 20)]


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (log((0, 30), topic_id="id-2"), "apples has id id-2, the checkpoint knows it as id-1"),
        (log((0, 9)), "ends at offset 9, the checkpoint stands at 10"),
        (log(), r"0 partitions, the checkpoint also knows \[0\]"),
    ],
)
def test_another_topic_of_the_same_name_is_refused_even_if_loss_is_accepted(now: TopicLog, why: str) -> None:
    first = advance(NOWHERE, {"apples": log((0, 10))})
    with pytest.raises(TopicReplacedError, match=why):
        advance(first, {"apples": now}, accept_loss=True)


def test_a_topic_that_was_created_again_is_read_from_its_start_by_who_knows_its_records() -> None:
    start = advance({}, {"apples": log((0, 50), (0, 50))})
    for again in (log((0, 20), (5, 60), topic_id="id-2"), log((0, 20), topic_id="id-2")):
        position = advance(start, {"apples": again}, accept_replaced=True)
        assert read(start, position) == [
            Span("apples", number, each.start, each.end) for number, each in again.partitions.items()
        ]
        assert advance(position, {"apples": again}, accept_replaced=True) == position


def test_topics_with_problems_are_named_and_the_others_can_be_read() -> None:
    start = advance({}, {"apples": log((0, 50)), "pears": log((0, 50))})
    now = {"apples": log((60, 80)), "pears": log((0, 60), topic_id="id-2")}
    assert {topic: str(each).partition(":")[0] for topic, each in problems(start, now).items()} == {
        "apples": "apples/0 begins at offset 60, the checkpoint stands at 50",
        "pears": "topic pears has id id-2, the checkpoint knows it as id-1",
    }
    assert problems(start, now, accept_loss=["apples"], accept_replaced=True) == {}


def test_a_planned_topic_is_the_same_one_as_long_as_its_id_its_partitions_and_its_ends_say_so() -> None:
    expected = advance({}, {"apples": log((0, 50))})
    assert not replaced_topics(expected, {"apples": log((10, 50), (0, 7))})
    for other in ({"apples": log((0, 50), topic_id="id-2")}, {"apples": log((0, 49))}, {"apples": log()}, {}):
        assert list(replaced_topics(expected, other)) == ["apples"]


def test_a_loss_is_an_error_also_where_another_topic_is_none() -> None:
    start = advance({}, {"apples": log((0, 50))})
    with pytest.raises(RecordsLostError):
        advance(start, {"apples": log((60, 80))}, accept_replaced=True)


def test_a_cluster_that_tells_no_ids_is_believed() -> None:
    first = advance(NOWHERE, {"apples": log((0, 10), topic_id="")})
    second = advance(first, {"apples": log((0, 11), topic_id="id-1")})
    assert read(first, second) == [Span("apples", 0, 10, 11)]


def with_last(*stamps: tuple[int, int]) -> TopicLog:
    return TopicLog("", {0: PartitionLog(0, 30)}, {number: Stamp(*each) for number, each in enumerate(stamps)})


def test_a_topic_of_the_same_id_is_another_one_where_what_was_read_had_been_later() -> None:
    position = parse(render(advance(NOWHERE, {"apples": with_last((29, 7_000))})))
    assert later_times(position, ["apples", "pears"]) == {("apples", 0): 7_001}
    assert not replaced_by_times(position, {("apples", 0): 30})
    assert not replaced_by_times(position, {("apples", 0): -1})
    replaced = replaced_by_times(position, {("apples", 0): 0})
    assert str(replaced["apples"]).startswith("apples/0 has at offset 0 a record of a later time")
    anew = advance(position, {"apples": with_last((2, 9_000))}, replaced=replaced)
    assert (anew["apples"].generation, read(position, anew)) == (1, [Span("apples", 0, 0, 30)])
    assert parse(render(anew)) == anew


def test_the_latest_time_is_remembered_when_its_record_is_gone() -> None:
    first = advance(NOWHERE, {"apples": with_last((9, 7_000))})
    assert advance(first, {"apples": TopicLog("", {0: PartitionLog(30, 40)})})["apples"].last == {0: Stamp(9, 7_000)}


def at(cluster: str, end: int, start: int = 0) -> dict[str, TopicLog]:
    """The log of a topic behind a gateway, as of now."""
    return {"apples": TopicLog("mesh", {0: PartitionLog(start, end)}, {0: Stamp(end - 1, 10 * end)}, cluster)}


def test_a_topic_that_moves_and_comes_back_goes_on_at_each_cluster_where_it_stood_there() -> None:
    on_c1 = advance(NOWHERE, at("101", 900))
    on_c2 = parse(render(advance(on_c1, at("102", 300), accept_replaced=True)))
    assert (on_c2["apples"].generation, read(on_c1, on_c2)) == (1, [Span("apples", 0, 0, 300)])
    back = parse(render(advance(on_c2, at("101", 1_200), accept_replaced=True)))
    assert (back["apples"].generation, read(on_c2, back)) == (0, [Span("apples", 0, 900, 1_200)])
    assert back["apples"].last == {0: Stamp(1_199, 12_000)}
    again = advance(back, at("102", 310), accept_replaced=True)
    assert (again["apples"].generation, read(back, again)) == (1, [Span("apples", 0, 300, 310)])
    assert advance(again, at("102", 310), accept_replaced=True) is again
    with pytest.raises(TopicReplacedError, match="a rule moved topic apples from cluster 102 to 101"):
        advance(again, at("101", 1_200))
    assert list(replaced_topics(again, at("101", 1_200))) == ["apples"]


def test_a_topic_that_was_created_again_while_it_was_away_begins_a_generation_that_was_never_there() -> None:
    on_c2 = advance(advance(NOWHERE, at("101", 900)), at("102", 300), accept_replaced=True)
    anew = advance(on_c2, at("101", 20), accept_replaced=True)
    assert (anew["apples"].generation, read(on_c2, anew)) == (2, [Span("apples", 0, 0, 20)])
    by_times = advance(on_c2, at("101", 950), accept_replaced=True, replaced=["apples"])
    assert (by_times["apples"].generation, read(on_c2, by_times)) == (2, [Span("apples", 0, 0, 950)])
    on_c1 = as_of(on_c2, at("101", 950))
    assert later_times(on_c1, on_c1) == {("apples", 0): 9_001}
    assert as_of(on_c2, at("103", 5)) == {}


def test_retention_of_what_waits_where_the_topic_comes_back_is_a_loss() -> None:
    on_c2 = advance(advance(NOWHERE, at("101", 900)), at("102", 300), accept_replaced=True)
    [problem] = problems(on_c2, at("101", 1_200, start=950), accept_replaced=True).values()
    assert str(problem).startswith("apples/0 begins at offset 950, the checkpoint stands at 900")


def test_a_topic_whose_cluster_is_not_shown_has_not_moved() -> None:
    on_c1 = advance(NOWHERE, at("101", 900))
    unknown = advance(on_c1, at("", 910))
    assert (read(on_c1, unknown), unknown["apples"].at) == ([Span("apples", 0, 900, 910)], "101")


def test_a_batch_is_bounded_and_shared_fairly() -> None:
    lags = {("small", 0): 10, ("large", 0): 1_000, ("large", 1): 5_000, ("idle", 0): 0}
    assert fair_shares(lags, 410) == {("idle", 0): 0, ("small", 0): 10, ("large", 0): 200, ("large", 1): 200}
    assert fair_shares(lags, 10_000) == lags
    assert sum(fair_shares(lags, 2).values()) == 2


def test_the_time_of_planning_is_kept_for_the_topics_that_a_batch_reads() -> None:
    first = planned_at(NOWHERE, advance(NOWHERE, {"apples": log((0, 10)), "pears": log((0, 5))}), 1_000)
    second = planned_at(first, advance(first, {"apples": log((0, 12)), "pears": log((0, 5))}), 2_000)
    assert {topic: entry.planned_ms for topic, entry in parse(render(second)).items()} == {
        "apples": 2_000,
        "pears": 1_000,
    }
    assert advance(second, {"apples": log((0, 12)), "pears": log((0, 5))}) is second
    assert planned_at(second, second, 3_000) is second, "a stream without records does not begin a batch"
