"""Which topics a change moves, and what their targets must have."""

from __future__ import annotations

import pytest

from mesh.routing import Place, RoutingTable
from services.control.domain.errors import NotAllowed
from services.control.domain.rules.moves import (
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


def moved(topic: str, source: str, target: str | None, partitions: int) -> Move:
    return Move(topic, Place(source, topic), Place(target, topic) if target else None, partitions)


def test_topics_whose_cluster_changes_move() -> None:
    before, after = table("ap*->c1", "b*->c2"), table("ap*->c2", "b*->c2")
    assert moves(before, after, c1={"apples": 3, "other": 1}) == [moved("apples", "c1", "c2", 3)]


def test_a_topic_that_exists_where_it_does_not_live_does_not_move() -> None:
    before, after = table("apples->c1"), table("apples->c2")
    assert moves(before, after, c2={"apples": 3}) == []


def test_a_topic_whose_rule_is_removed_moves_nowhere() -> None:
    assert moves(table("apples->c1"), table(), c1={"apples": 1}) == [moved("apples", "c1", None, 1)]


def test_topics_of_kafka_and_of_the_mesh_never_move() -> None:
    before, after = table("~.*->c1"), table("~.*->c2")
    assert moves(before, after, c1={"__consumer_offsets": 50, "mesh.events": 1, "a": 1}) == [moved("a", "c1", "c2", 1)]


def test_a_target_without_the_topic_is_refused_by_name() -> None:
    result = checked([moved("apples", "c1", "c2", 3)], {"c2": {}})
    with pytest.raises(NotAllowed, match="topic 'apples' has 3 partitions on 'c1' and does not exist on 'c2'"):
        refuse_absent(result)


def test_a_target_with_fewer_partitions_is_refused_with_both_numbers() -> None:
    result = checked([moved("apples", "c1", "c2", 3)], {"c2": {"apples": 2}})
    with pytest.raises(NotAllowed, match="'apples' has 3 partitions on 'c1', but 2 on 'c2'"):
        refuse_narrow(result)


def test_a_target_that_could_not_be_asked_is_not_checked() -> None:
    result = checked([moved("apples", "c1", "c2", 3)], {"c1": {"apples": 3}})
    assert (result.absent, result.narrow) == ((), ())


def test_a_target_with_as_many_or_more_is_fine() -> None:
    result = checked(
        [moved("a", "c1", "c2", 3), moved("b", "c1", "c2", 1), moved("c", "c1", None, 1)], {"c2": {"a": 3, "b": 9}}
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


def test_topics_are_looked_for_by_the_names_that_they_have_on_their_cluster() -> None:
    before, after = table("eu.*->c1:tenant.{topic}"), table("eu.*->c2:t-{suffix}")
    there = {"tenant.eu.orders": 3, "eu.orders": 1, "other": 1}
    (move,) = moves(before, after, c1=there)
    assert move == Move("eu.orders", Place("c1", "tenant.eu.orders"), Place("c2", "t-orders"), 3)
    with pytest.raises(
        NotAllowed, match=r"3 partitions on 'c1' as 'tenant\.eu\.orders' and does not exist on 'c2' as 't-"
    ):
        refuse_absent(checked([move], {"c2": {"eu.orders": 3, "orders": 3}}))
    refuse_absent(checked([move], {"c2": {"t-orders": 3}}))


def test_another_name_on_the_same_cluster_is_a_move() -> None:
    (move,) = moves(table("orders->c1"), table("orders->c1:shop.{topic}"), c1={"orders": 2})
    assert move == Move("orders", Place("c1", "orders"), Place("c1", "shop.orders"), 2)


def test_a_topic_whose_name_a_renaming_rule_takes_moves_nowhere() -> None:
    before, after = table("shop.*->c1"), table("shop.*->c1", "orders->c1:shop.orders")
    assert moves(before, after, c1={"shop.orders": 2}) == [Move("shop.orders", Place("c1", "shop.orders"), None, 2)]


@pytest.mark.parametrize(
    ("before", "after", "losing"),
    [
        (["orders->c1"], ["orders->c1:shop.{topic}"], {"c1"}),
        (["orders->c1:a.{topic}", "b*->c2"], ["orders->c1:b.{topic}", "b*->c2"], {"c1"}),
        (["shop.*->c1"], ["shop.*->c1", "orders->c1:shop.orders"], {"c1"}),
        (["orders->c1", "group:g->c2"], ["orders->c1", "group:g->c3"], set()),
        (["group:g->c2", "orders->c1"], ["orders->c1"], set()),
    ],
)
def test_clusters_are_looked_at_for_names_too_and_not_for_groups(
    before: list[str], after: list[str], losing: set[str]
) -> None:
    assert clusters_that_may_lose(table(*before), table(*after)) == losing
