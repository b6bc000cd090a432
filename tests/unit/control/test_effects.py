"""What readers of a topic that moves will see, told by numbers."""

from __future__ import annotations

import pytest

from mesh.routing import Place
from services.control.domain.errors import NotAllowed
from services.control.domain.log_ranges import LogRange
from services.control.domain.rules.edits import Create, RuleFields, Update
from services.control.domain.rules.effects import (
    Fate,
    OffsetKeepers,
    effects_of,
    fate_of,
    places_of_danger,
    refuse_skips,
)
from services.control.domain.rules.moves import Move
from services.control.domain.rules.rule_set import RuleSet
from tests.unit.control.worlds import rule, rule_set, table

HERE, THERE = Place("c1", "apples"), Place("c2", "fruit.apples")
MOVE = Move("apples", HERE, THERE, 2)
KEEPERS = OffsetKeepers(table("ap*->c1"))


@pytest.mark.parametrize(
    ("position", "log", "read_before", "fate"),
    [
        (0, LogRange(0, 0), None, Fate.GOES_ON),
        (0, LogRange(0, 50), None, Fate.GOES_ON),
        (20, LogRange(0, 0), None, Fate.OUT_OF_RANGE),
        (20, LogRange(0, 19), None, Fate.OUT_OF_RANGE),
        (20, LogRange(30, 90), None, Fate.OUT_OF_RANGE),
        (30, LogRange(30, 30), None, Fate.GOES_ON),
        (20, LogRange(0, 90), None, Fate.SILENT_SKIP),
        (90, LogRange(0, 90), None, Fate.SILENT_SKIP),
        (90, LogRange(0, 90), 90, Fate.GOES_ON),
        (20, LogRange(0, 90), 90, Fate.READS_AGAIN),
        (20, LogRange(0, 90), 10, Fate.SILENT_SKIP),
        (99, LogRange(0, 90), 90, Fate.OUT_OF_RANGE),
    ],
)
def test_the_fate_of_a_reader(position: int, log: LogRange, read_before: int | None, fate: Fate) -> None:
    assert fate_of(position, log, read_before) is fate


def test_records_stay_and_each_group_is_told_its_worst_partition() -> None:
    logs = {HERE: {0: LogRange(0, 10), 1: LogRange(5, 20)}, THERE: {0: LogRange(0, 0), 1: LogRange(0, 40)}}
    positions = {HERE: {"shop": {0: 10, 1: 18}, "audit": {0: 0}}}
    records, audit, shop = effects_of([MOVE], KEEPERS, logs, positions, {})
    assert (records.fate, records.records, records.group) == (Fate.RECORDS_STAY, 25, "")
    assert (audit.group, audit.fate) == ("audit", Fate.GOES_ON)
    assert (shop.group, shop.fate, shop.partition, shop.position) == ("shop", Fate.SILENT_SKIP, 1, 18)
    with pytest.raises(NotAllowed) as refused:
        refuse_skips([records, audit, shop])
    assert refused.value.kind == "GROUP_WOULD_SKIP_RECORDS"
    assert refused.value.message.startswith(
        "group 'shop' is at offset 18 of topic 'apples' partition 1, and would silently go on from that number on 'c2' "
        "as 'fruit.apples', whose log is not empty (offsets 0 to 40)"
    )
    refuse_skips([records, audit])


def test_a_topic_that_is_yet_to_be_created_is_empty() -> None:
    (_, shop) = effects_of([MOVE], KEEPERS, {HERE: {0: LogRange(0, 10)}, THERE: {}}, {HERE: {"shop": {0: 10}}}, {})
    assert shop.fate is Fate.OUT_OF_RANGE


def test_nothing_is_said_of_logs_that_could_not_be_seen() -> None:
    assert effects_of([MOVE], KEEPERS, {}, {HERE: {"shop": {0: 10}}}, {}) == []
    nowhere = Move("apples", HERE, None, 2)
    (only,) = effects_of([nowhere], KEEPERS, {HERE: {0: LogRange(0, 1)}}, {}, {})
    assert only.fate is Fate.RECORDS_STAY


@pytest.mark.parametrize(
    ("old", "new", "danger"),
    [
        (LogRange(0, 10), LogRange(0, 0), False),
        (LogRange(0, 0), LogRange(0, 10), False),
        (LogRange(0, 10), LogRange(0, 1), True),
        (LogRange(0, 10), LogRange(10, 20), False),
    ],
)
def test_groups_are_asked_for_only_where_one_may_be_harmed(old: LogRange, new: LogRange, danger: bool) -> None:
    assert places_of_danger([MOVE], {HERE: {0: old}, THERE: {0: new}}) == ({HERE} if danger else set())


def test_a_group_with_shadow_topics_keeps_its_position_at_home() -> None:
    shadows = rule_set("ap*->c1").change(Create(rule("group:shop*->c3", shadow_topics=True))).after
    at_home = Place("c3", "apples")
    keepers = OffsetKeepers(shadows)
    assert keepers.places(MOVE) == {HERE, at_home}
    assert KEEPERS.places(MOVE) == {HERE}
    positions = {HERE: {"shop-1": {0: 3}, "audit": {0: 10}}, at_home: {"shop-1": {0: 7}, "audit": {0: 1}}}
    assert keepers.readers(MOVE, positions) == {"shop-1": {0: 7}, "audit": {0: 10}}


def test_a_topic_that_lived_at_home_before_has_its_shadow_there_under_its_old_name() -> None:
    rules = rule_set("apples->c3:old.{topic}", "group:shop->c3")
    moved = RuleSet(rules.change(Update("r1", RuleFields(target_cluster="c1", upstream_topic=""))).after, 8)
    shadows = moved.change(Update("r2", RuleFields(shadow_topics=True))).after
    assert OffsetKeepers(shadows).places(MOVE) == {HERE, Place("c3", "old.apples")}
