"""Which topics a change moves, and what their targets must have."""

from __future__ import annotations

import pytest

from mesh.routing import RoutingTable
from services.control.domain.errors import NotAllowed
from services.control.domain.moves import (
    Move,
    checked,
    clusters_that_may_lose,
    planned_moves,
    refuse_absent,
    refuse_narrow,
)
from tests.unit.control.worlds import table


def moves(before: RoutingTable, after: RoutingTable, **topics: dict[str, int]) -> list[Move]:
    return planned_moves(before, after, topics, never=["mesh.events"])


def test_topics_whose_cluster_changes_move() -> None:
    before, after = table("ap*->c1", "b*->c2"), table("ap*->c2", "b*->c2")
    assert moves(before, after, c1={"apples": 3, "other": 1}) == [Move("apples", "c1", "c2", 3)]


def test_a_topic_that_exists_where_it_does_not_live_does_not_move() -> None:
    before, after = table("apples->c1"), table("apples->c2")
    assert moves(before, after, c2={"apples": 3}) == []


def test_a_topic_whose_rule_is_removed_moves_nowhere() -> None:
    assert moves(table("apples->c1"), table(), c1={"apples": 1}) == [Move("apples", "c1", None, 1)]


def test_topics_of_kafka_and_of_the_mesh_never_move() -> None:
    before, after = table("~.*->c1"), table("~.*->c2")
    assert moves(before, after, c1={"__consumer_offsets": 50, "mesh.events": 1, "a": 1}) == [Move("a", "c1", "c2", 1)]


def test_a_target_without_the_topic_is_refused_by_name() -> None:
    result = checked([Move("apples", "c1", "c2", 3)], {"c2": {}})
    with pytest.raises(NotAllowed, match="topic 'apples' has 3 partitions on 'c1' and does not exist on 'c2'"):
        refuse_absent(result)


def test_a_target_with_fewer_partitions_is_refused_with_both_numbers() -> None:
    result = checked([Move("apples", "c1", "c2", 3)], {"c2": {"apples": 2}})
    with pytest.raises(NotAllowed, match="'apples' has 3 partitions on 'c1', but 2 on 'c2'"):
        refuse_narrow(result)


def test_a_target_that_could_not_be_asked_is_not_checked() -> None:
    result = checked([Move("apples", "c1", "c2", 3)], {"c1": {"apples": 3}})
    assert (result.absent, result.narrow) == ((), ())


def test_a_target_with_as_many_or_more_is_fine() -> None:
    result = checked(
        [Move("a", "c1", "c2", 3), Move("b", "c1", "c2", 1), Move("c", "c1", None, 1)], {"c2": {"a": 3, "b": 9}}
    )
    refuse_absent(result)
    refuse_narrow(result)


@pytest.mark.parametrize(
    ("before", "after", "losing"),
    [
        (["apples->c1", "b*->c2"], ["apples->c3", "b*->c2"], {"c1"}),
        (["apples->c1"], [], {"c1"}),
        (["~.*->c3"], ["apples->c1", "~.*->c3"], {"c3"}),
        (["b*->c3"], ["apples->c1", "b*->c3"], set()),
        (["a*->c2"], ["ab*->c1", "a*->c2"], {"c2"}),
        (["a*->c2"], ["ab*->c2", "a*->c2"], set()),
        (["apples->c1", "a*->c2"], ["a*->c2", "apples->c1"], {"c1"}),
        (["apples->c1", "b*->c2"], ["b*->c2", "apples->c1"], set()),
    ],
)
def test_only_clusters_that_the_change_reaches_are_looked_at(
    before: list[str], after: list[str], losing: set[str]
) -> None:
    assert clusters_that_may_lose(table(*before), table(*after)) >= losing
    if not losing:
        assert clusters_that_may_lose(table(*before), table(*after)) == set()
