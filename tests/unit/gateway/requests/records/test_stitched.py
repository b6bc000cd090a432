"""The arithmetic of stitched logs."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mesh.routing import ExactName, ForwardingRule, Route
from mesh.stitches import LogPart, Policy, StitchedLog
from services.gateway.requests.knowledge import TopicKnowledge
from services.gateway.requests.memory import Memory
from services.gateway.requests.records.fetch_routes import route_to as fetch_route
from services.gateway.requests.records.fetch_sessions import Marks
from services.gateway.requests.records.produce_routes import route_to as produce_route
from services.gateway.requests.records.stitched import (
    NO_CLUSTER,
    Stretch,
    at,
    covering,
    is_stitched,
    stretches,
    stretches_of,
)
from tests.unit.gateway.requests.records.stitching import BACK, NEW, OLD, stitched_world


@st.composite
def logs(draw: st.DrawFn) -> list[LogPart]:
    """Parts of one partition, as cuts make them: each begins where the last one ends."""
    lengths = draw(st.lists(st.integers(0, 50), min_size=1, max_size=6))
    parts: list[LogPart] = []
    start = 0
    for number, length in enumerate(lengths):
        base = draw(st.integers(0, 30)) if number else 0
        parts.append(LogPart(f"c{number % 3}", "apples", 1 + number // 3, (start,), (start - base,)))
        start += length
    return parts


@given(logs(), st.integers(0, 400))
def test_each_offset_is_in_one_part_and_comes_back_as_it_was(parts: list[LogPart], offset: int) -> None:
    found = stretches_of(parts, 0)
    holding = [part for part in found if part.has(offset)]
    assert len(holding) == (1 if found else 0)
    for part in holding:
        assert at(found, offset) is part
        assert part.shown(part.there(offset)) == offset
        assert part.there(offset) >= part.start - part.shift


@given(logs())
def test_the_parts_of_a_partition_have_no_gap_and_the_present_one_has_no_end(parts: list[LogPart]) -> None:
    found = stretches_of(parts, 0)
    for part, after in pairwise(found):
        assert part.end == after.start
    assert not found or (found[-1].end is None and {part.present for part in found} == {found[-1].start})
    assert [part.is_first for part in found] == [True] + [False] * (len(found) - 1) if found else True


def test_partitions_that_came_later_have_no_old_part() -> None:
    wide = LogPart("c2", "apples", 1, (100, 0), (90, 0))
    assert stretches_of([OLD, wide], 1) == ()
    assert stretches_of([OLD, NEW], 1) == ()
    assert stretches_of([OLD, NEW], -1) == ()


def test_a_log_with_one_part_and_its_clusters_offsets_needs_nothing() -> None:
    assert stretches_of([OLD], 0) == ()
    assert stretches_of([], 0) == ()
    (alone,) = stretches_of([NEW], 0)
    assert (alone.start, alone.end, alone.is_first) == (100, None, True)


def test_an_old_part_without_records_is_left_out() -> None:
    empty = LogPart("c3", "apples", 1, (100,), (70,))
    assert [part.cluster for part in stretches_of([OLD, empty, NEW], 0)] == ["c1", "c2"]


def test_a_log_behind_an_old_part_goes_on() -> None:
    old, present = stretches_of([OLD, NEW], 0)
    assert old.shown_marks(Marks(70, 60, 20)) == Marks(100, 60, 20)
    assert old.shown_marks(Marks(105, 103, 20)) == Marks(100, 100, 20)
    assert old.shown_marks(Marks(105, 103, 105)) == Marks(100, 100, 100)
    assert present.shown_marks(Marks(15, 14, 10)) == Marks(105, 104, -1)
    assert present.shown_marks(Marks()) == old.shown_marks(Marks()) == Marks()


def test_a_topic_that_came_back_has_two_parts_on_one_log() -> None:
    first, second, third = stretches_of([OLD, NEW, BACK], 0)
    assert [part.cluster for part in (first, second, third)] == ["c1", "c2", "c1"]
    found = (first, second, third)
    assert covering(found, third, 99) is first
    assert covering(found, third, 105) is third
    assert covering(found, third, 102) is None
    assert covering(found, second, 12) is second


def test_a_part_that_no_request_can_name_counts_as_away() -> None:
    renamed = LogPart("c1", "pears", 1, (150,), (140,))
    assert [part.cluster for part in stretches_of([OLD, NEW, renamed], 0)] == [NO_CLUSTER, "c2", "c1"]


def test_parts_count_from_the_time_at_which_the_topic_is_there() -> None:
    world = stitched_world()
    assert [part.cluster for part in stretches("apples", 0, world.view())] == ["c1", "c2"]
    world.move("apples", "c1")
    assert [part.cluster for part in stretches("apples", 0, world.view())] == ["c1", "c2", "c1"]
    assert stretches("bananas", 0, world.view()) == stretches(bytes(16), 0, world.view()) == ()


def test_routes_of_stitched_topics_have_the_shift_of_the_present_part() -> None:
    world = stitched_world()
    world.clusters["c2"].topics["bananas"] = TopicKnowledge("bananas", bytes(16), (2,))
    names = ("apples", "bananas")
    fetched = [fetch_route(name, world.table, world.clusters, "mesh-id", world.memory, 0.0) for name in names]
    parts = [route.present(0) for route in fetched if route is not None]
    assert [part and part.shift for part in parts] == [90, None]
    produced = [produce_route(name, world.table, world.clusters, "mesh-id", world.memory, 0.0) for name in names]
    assert [route and route.shifts for route in produced] == [(90,), ()]


def test_a_log_that_was_never_cut_is_not_stitched() -> None:
    memory = Memory(stitches=Policy([StitchedLog("apples", (OLD, NEW))], 1))
    rule = ForwardingRule("r", ExactName("apples"), "c1")
    assert not is_stitched("apples", Route("c1", rule, 1, None, "apples"), memory)
    assert is_stitched("apples", Route("c2", rule, 1, None, "apples"), memory)
    assert not is_stitched("apples", Route("c2", rule, 1, None, "pears"), memory)


def test_unknown_offsets_stay_unknown() -> None:
    assert Stretch("c2", "apples", 90, 100, None, 100, False).shown(-1) == -1
