"""Where a group goes on, and who has to stop for that."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.routing import Place, RoutingTable, RuleVersion
from mesh.rpc import events, replays
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.log_ranges import LogRange
from services.control.domain.replays.plans import (
    NOWHERE,
    by_keeper,
    keeper_of,
    new_place,
    partitions_of,
    place_of,
    to_be_stopped,
)
from tests.unit.control.worlds import rule, table

LOG = LogRange(10, 50)
Range = replays.ReplayRange


@pytest.mark.parametrize(
    ("asked", "since", "meant"),
    [
        ({}, NOWHERE, 10),
        ({"start_at_end": True}, NOWHERE, 50),
        ({"start_offset": 30}, NOWHERE, 30),
        ({"start_offset": 50}, NOWHERE, 50),
        ({"start_time": {"seconds": 1}}, 20, 20),
        ({"start_time": {"seconds": 1}}, NOWHERE, 50),
    ],
)
def test_where_a_partition_goes_on(asked: dict[str, Any], since: int, meant: int) -> None:
    assert new_place(Range(topic="t", partition=0, **asked), LOG, since, "f") == meant


def test_an_offset_has_to_be_in_the_log() -> None:
    with pytest.raises(InvalidField, match="9 is not in the log of t/0, which has offsets 10 to 50"):
        new_place(Range(topic="t", partition=0, start_offset=9), LOG, NOWHERE, "f")
    with pytest.raises(InvalidField, match="has 3 partitions, from 0 to 2; 3 is none of them"):
        partitions_of(Range(topic="t", partition=3), 3, "f")
    assert partitions_of(Range(topic="t"), 3, "f") == [0, 1, 2]


def test_offsets_are_kept_beside_the_records_or_where_a_group_has_shadows_of_topics() -> None:
    rules = table("apples->c1", "pears->c2:fruit.{topic}", "group:shop->c1")
    assert keeper_of(rules, "shop", "pears", place_of(rules, "pears", "f")) == Place("c2", "fruit.pears")
    shadowing = RuleVersion(rule("group:shop->c1", "shadows", shadow_topics=True), 0.5, from_revision=1)
    with_shadows = RoutingTable(8, rules.clusters.values(), [*rules.versions, shadowing])
    for topic, keeper in (("pears", Place("c1", "pears")), ("apples", Place("c1", "apples"))):
        assert keeper_of(with_shadows, "shop", topic, place_of(with_shadows, topic, "f")) == keeper
    with pytest.raises(InvalidField, match="topic 'plums' lives nowhere"):
        place_of(rules, "plums", "f")


def test_offsets_are_not_set_in_another_log_than_was_planned() -> None:
    rules = table("apples->c1", "pears->c2:fruit.{topic}")
    planned = [
        replays.ReplayPartition(topic="apples", cluster="c1", partition=1, start_offset=5),
        replays.ReplayPartition(topic="pears", cluster="c2", start_offset=7),
    ]
    assert by_keeper(rules, "shop", planned) == {"c1": {("apples", 1): 5}, "c2": {("fruit.pears", 0): 7}}
    with pytest.raises(NotAllowed, match="topic 'pears' has moved from c2 to c3 meanwhile"):
        by_keeper(table("apples->c1", "pears->c3"), "shop", planned)


def held(**instances: dict[str, Any]) -> dict[str, events.ConsumerInstance]:
    """By instance id; each is held by s1, and in the group shop, unless it says otherwise."""
    return {
        f"instances/shop.{name}": events.ConsumerInstance(
            **{"name": f"instances/shop.{name}", "group": "shop", "sidecar": "s1", **fields}
        )
        for name, fields in instances.items()
    }


def stopped(members: list[str], known: dict[str, events.ConsumerInstance], *, stop: bool = True) -> list[str]:
    named = [(member, f"{member} at here") for member in members]
    return to_be_stopped("shop", named, known, lambda sidecar: sidecar != "gone", stop=stop)


def test_instances_that_sidecars_hold_stop() -> None:
    known = held(one={}, two={}, drained={"drained": True}, other={"group": "x"}, silent={"sidecar": "gone"})
    assert stopped(["s1", "s1"], known) == ["instances/shop.one", "instances/shop.two"]
    assert stopped([], {}) == []


def test_others_are_named() -> None:
    with pytest.raises(NotAllowed, match="no sidecar holds, and that control can't stop: s1 at here, app at here;"):
        stopped(["s1", "s1", "app"], held(one={}))
    with pytest.raises(NotAllowed, match=r"has 2 members \(s1 at here, app at here\); stop them, or set stop"):
        stopped(["s1", "app"], held(one={}), stop=False)
    with pytest.raises(NotAllowed, match=r"an operator has paused shop\.one of group 'shop'"):
        stopped(["s1"], held(one={"paused": True}))
    assert stopped([], held(one={}), stop=False) == []
