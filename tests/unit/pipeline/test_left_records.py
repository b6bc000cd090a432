"""Records that a topic leaves at a cluster when a rule moves it: how far they are read, and when they count as lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.pipeline.kafka.lags import Lag
from services.pipeline.kafka.left_records import (
    LeftLog,
    Look,
    advance_left,
    entry_of,
    given_up_at,
    lag_of_left,
    loss_of,
    stays_of,
)
from services.pipeline.kafka.position_json import parse, render
from services.pipeline.kafka.positions import PartitionLog, Position, Span, Stamp, TopicLog, advance, spans

NAME, PLACE = "101/apples", "c1/old.apples"
PLACES = {NAME: PLACE}


def at(cluster: str, end: int) -> dict[str, TopicLog]:
    """The log of a topic behind a gateway, as of now."""
    return {"apples": TopicLog("mesh", {0: PartitionLog(0, end)}, {0: Stamp(end - 1, 10 * end)}, cluster)}


def there(*bounds: tuple[int, int], stable: int | None = None, topic_id: str = "id-1") -> LeftLog:
    """The topic as its former cluster describes it."""
    log = {each: PartitionLog(start, end if stable is None else stable) for each, (start, end) in enumerate(bounds)}
    return LeftLog(TopicLog(topic_id, log), {each: end for each, (_, end) in enumerate(bounds)})


def moved() -> Position:
    """The topic was read up to offset 10 of c1, and is at c2 now."""
    return advance(advance({}, at("101", 10)), at("102", 5), accept_replaced=True)


def step(
    start: Position, look: Look, *, end: int = 5, max_rows: int | None = None, accepted: bool = False
) -> tuple[Position, list[Span]]:
    """The next batch: its end as the checkpoint has it, and its spans."""
    after = advance(start, at("102", end), accept_replaced=True, max_rows=max_rows)
    topics = ["apples"] if accepted else []
    after = advance_left(start, after, {NAME: look}, PLACES, accept_loss_of=topics, max_rows=max_rows)
    return (start, []) if after is start else (parse(render(after)), list(spans(start, after)))


def test_the_rest_is_read_in_the_generation_of_its_cluster_up_to_the_end_that_was_seen_first() -> None:
    start = moved()
    assert list(stays_of(start, ["apples", "pears"])) == [NAME]
    first, read = step(start, there((0, 30)), max_rows=8)
    assert read == [Span(NAME, 0, 10, 18)]
    assert entry_of(first, NAME).generation == 0
    assert entry_of(first, "apples").generation == 1
    second, read = step(first, there((0, 50)), end=7)
    assert read == [Span("apples", 0, 5, 7), Span(NAME, 0, 18, 30)]
    assert stays_of(second, ["apples"]) == {}
    assert step(second, there((0, 60)), end=7) == (second, []), "a mirror writes there; that is not the topic's"
    assert step(second, None, end=7) == (second, []), "it may be deleted now"


def test_a_topic_that_left_nothing_is_done_with_at_the_first_look() -> None:
    done, read = step(moved(), there((0, 10)))
    assert (stays_of(done, ["apples"]), read) == ({}, [])


def test_a_batch_that_reads_nothing_of_what_is_left_does_not_read_the_last_part_again() -> None:
    first, read = step(moved(), there((0, 10), (0, 9)), max_rows=4)
    assert read == [Span(NAME, 1, 0, 4)]
    other, read = step(first, replace(there((0, 10), (0, 9)), log=there((0, 10), (0, 4)).log), end=6)
    assert read == [Span("apples", 0, 5, 6)]
    assert entry_of(other, NAME).starts == {}


def test_an_open_transaction_holds_the_rest_back_until_it_has_ended() -> None:
    first, read = step(moved(), there((0, 30), stable=12))
    assert read == [Span(NAME, 0, 10, 12)]
    assert lag_of_left(stays_of(first, ["apples"]), {}) == Lag(18, None)
    second, read = step(first, there((0, 31)))
    assert read == [Span(NAME, 0, 12, 30)]
    assert lag_of_left(stays_of(second, ["apples"]), {}) == Lag(0, None)


def test_what_is_left_is_counted_from_the_first_look_on() -> None:
    stays = stays_of(moved(), ["apples"])
    assert lag_of_left(stays, {NAME: there((4, 30), stable=12)}) == Lag(20, 6)
    assert lag_of_left(stays, {NAME: None}) == lag_of_left(stays, {}) == Lag(0, None)
    assert Lag(3, 7) + Lag(20, 6) == Lag(23, 6)
    assert Lag(0, None) + Lag(20, 6) == Lag(20, 6)


def test_a_topic_that_is_back_goes_on_there_and_what_it_left_meanwhile_is_read_where_it_was() -> None:
    start, _ = step(moved(), there((0, 30), stable=12))
    back = advance(start, at("101", 40), accept_replaced=True)
    assert advance_left(start, back, {NAME: there((0, 40))}, PLACES) is back
    assert list(spans(start, back)) == [Span("apples", 0, 12, 40)]
    assert list(stays_of(back, ["apples"])) == ["102/apples"]
    away = advance(back, at("102", 5), accept_replaced=True)
    assert entry_of(away, NAME).generation == 0
    assert step(away, there((0, 45)))[1] == [Span(NAME, 0, 40, 45)], "the end is looked for anew"


@pytest.mark.parametrize(
    ("look", "loss"),
    [
        (
            None,
            "topic apples was deleted at c1 before it was read to its end there: offsets 10 and later of partition 0",
        ),
        (there((0, 8)), "topic apples was created again at c1 before"),
        (replace(there((0, 30)), is_another=True), "topic apples was created again at c1 before"),
        (there((12, 30)), "c1/old.apples/0 begins at offset 12, the checkpoint stands at 10"),
    ],
)
def test_what_is_gone_unread_is_a_loss_and_is_done_with_when_that_is_accepted(look: Look, loss: str) -> None:
    start = moved()
    [(name, stay)] = stays_of(start, ["apples"]).items()
    assert str(loss_of(name, stay, look, PLACE)).startswith(loss)
    assert step(start, look) == (start, [])
    accepted, read = step(start, look, accepted=True)
    is_there = look is not None and look.log.partitions[0].start == 12
    assert read == ([Span(NAME, 0, 12, 30)] if is_there else [])
    assert stays_of(accepted, ["apples"]) == {}


def test_once_its_end_is_known_a_loss_is_named_to_the_offset_and_an_id_shows_another_topic() -> None:
    start, _ = step(moved(), there((0, 30), stable=12))
    [(name, stay)] = stays_of(start, ["apples"]).items()
    assert "offsets 12 to 29 of partition 0 are lost" in str(loss_of(name, stay, None, PLACE))
    assert "was created again at c1" in str(loss_of(name, stay, there((0, 99), topic_id="id-2"), PLACE))
    assert loss_of(name, stay, there((0, 30)), PLACE) is None
    assert "was at a cluster that was removed before" in str(loss_of(name, stay, None, ""))
    assert given_up_at(name, stay, PLACE) == "goes on without what was left at c1: offsets 12 to 29 of partition 0"


def test_a_position_of_before_left_records_were_read_has_them_to_be_read() -> None:
    document = render(moved())
    assert document["apples"]["former"] == {"101": {"next": {"0": 10}, "last": {"0": [9, 100]}}}
    assert step(parse(document), there((0, 30)))[1] == [Span(NAME, 0, 10, 30)]
