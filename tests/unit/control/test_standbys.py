"""Standbys of clusters: the state that follows from events, the copies of routers, and the refusals."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mesh.record_rules import RecordRules, fold_record_rules, standby_copy_of
from mesh.rpc import events, record_rules, standbys
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.standbys.policies import is_away, obstacle
from services.control.domain.standbys.standbys import (
    FAILED_OVER,
    FAILING_OVER,
    FOLLOWING,
    Standbys,
    ended,
    failing_over,
    fold_standbys,
    named,
    started,
    switches,
    with_lag,
)

NAME = "standbys/c1"
CLUSTERS = ("c1", "c2", "home")


def spec_of(source: str = "c1", target: str = "c2", rate: int = 0) -> standbys.StandbySpec:
    return standbys.StandbySpec(source_cluster=source, target_cluster=target, bytes_per_second=rate)


def begun(spec: standbys.StandbySpec, known: Standbys | None = None) -> events.StandbyStarted:
    return started(known or {}, spec, CLUSTERS, ["home"], "ann", "", datetime.now(UTC))


def topic_of(name: str, left: bool = False, *partitions: tuple[int, int]) -> standbys.StandbyTopic:
    copy = record_rules.CopySpec(source_cluster="c1", topic=name, target_cluster="c2", target_topic=name)
    numbered = (
        standbys.StandbyPartition(partition=number, position=position, end=end)
        for number, (position, end) in enumerate(partitions)
    )
    return standbys.StandbyTopic(topic=name, copy=copy, left=left, partitions=numbered)


def event_of(position: int, **payload: object) -> events.Event:
    return events.Event(position=position, **payload)  # type: ignore[arg-type]  # the payload is one of many


def topics_set(position: int, *topics: standbys.StandbyTopic) -> events.Event:
    return event_of(position, standby_topics_set=events.StandbyTopicsSet(name=NAME, topics=topics))


def folded(*story: events.Event) -> tuple[Standbys, RecordRules]:
    known: Standbys = {}
    rules: RecordRules = {}
    for event in story:
        known, rules = fold_standbys(known, event), fold_record_rules(rules, event)
    return known, rules


def story() -> list[events.Event]:
    return [event_of(1, standby_started=begun(spec_of())), topics_set(2, topic_of("b"), topic_of("a", True))]


def test_routers_copy_the_topics_that_fit_until_the_standby_ends() -> None:
    known, rules = folded(*story())
    assert [each.topic for each in known[NAME].topics] == ["a", "b"]
    assert {*rules} == {standby_copy_of(NAME, "b")}
    known, rules = folded(*story(), event_of(3, standby_ended=events.StandbyEnded(name=NAME)))
    assert (known, rules) == ({}, {})


def test_the_copy_of_a_topic_that_is_left_ends_and_the_others_go_on() -> None:
    _, rules = folded(*story(), topics_set(3, topic_of("c")), topics_set(4, topic_of("b", True)))
    assert {*rules} == {standby_copy_of(NAME, "c")}


def test_a_standby_of_a_cluster_with_a_longer_name_keeps_its_copies() -> None:
    other = events.StandbyTopicsSet(name=f"{NAME}-x", topics=[topic_of("b")])
    longer = event_of(3, standby_started=begun(spec_of("c2", "c1")))
    longer.standby_started.standby.name = f"{NAME}-x"
    end = event_of(5, standby_ended=events.StandbyEnded(name=NAME))
    _, rules = folded(*story(), longer, event_of(4, standby_topics_set=other), end)
    assert {*rules} == {standby_copy_of(f"{NAME}-x", "b")}


def test_a_fail_over_ends_the_copies_and_leads_the_copied_topics_to_the_target() -> None:
    known, _ = folded(*story())
    order = event_of(3, fail_over_begun=failing_over(known, NAME, "c2"))
    known, rules = folded(*story(), order, topics_set(4, topic_of("b", False, (10, 12), (7, 7))))
    assert (known[NAME].state, rules) == (FAILING_OVER, {})
    assert [each.match.text for each in switches(known[NAME])] == ["b"]  # type: ignore[union-attr]  # edits that set
    end = event_of(5, fail_over_ended=events.FailOverEnded(name=NAME))
    known, rules = folded(*story(), order, topics_set(4, topic_of("b", False, (10, 12), (7, 7))), end)
    assert (known[NAME].state, rules) == (FAILED_OVER, {})


def test_the_lag_is_the_records_of_all_partitions_that_the_copy_lacks() -> None:
    assert with_lag(topic_of("b", False, (10, 12), (7, 7), (9, 8))).lag_records == 2


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (spec_of("c3"), "spec.source_cluster"),
        (spec_of("c1", "c1"), "spec.target_cluster"),
        (spec_of(rate=-1), "spec.bytes_per_second"),
    ],
)
def test_an_order_with_a_wrong_field_is_refused_by_its_name(spec: standbys.StandbySpec, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        begun(spec)
    assert refused.value.field == field


def test_a_standby_of_the_home_and_a_second_one_of_a_cluster_are_refused() -> None:
    with pytest.raises(NotAllowed) as refused:
        begun(spec_of("home"))
    assert refused.value.kind == "CLUSTER_IS_HOME"
    with pytest.raises(NotAllowed) as refused:
        begun(spec_of(), folded(*story())[0])
    assert refused.value.kind == "STANDBY_EXISTS"


def test_a_fail_over_to_another_cluster_or_without_a_copy_or_twice_is_refused() -> None:
    known, _ = folded(*story())
    with pytest.raises(InvalidField, match="is on 'c2', not 'home'"):
        failing_over(known, NAME, "home")
    with pytest.raises(NotAllowed) as refused:
        failing_over(folded(story()[0])[0], NAME, "c2")
    assert refused.value.kind == "NOTHING_TO_FAIL_OVER"
    known, _ = folded(*story(), event_of(3, fail_over_begun=events.FailOverBegun(name=NAME)))
    for change in (lambda: failing_over(known, NAME, "c2"), lambda: ended(known, NAME)):
        with pytest.raises(NotAllowed) as refused:
            change()
        assert refused.value.kind == "STANDBY_FAILS_OVER"
    assert named(known, NAME).state != FOLLOWING
    with pytest.raises(Unknown):
        named(known, "standbys/c9")


def policy_of(after_s: int | None, lost: int | None = None, lag_s: int | None = None) -> standbys.StandbySpec:
    spec = spec_of()
    if after_s is not None:
        spec.fail_over_after.FromSeconds(after_s)
    if lost is not None:
        spec.max_lost_records = lost
    if lag_s is not None:
        spec.max_lag.FromSeconds(lag_s)
    return spec


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (policy_of(1), "spec.fail_over_after"),
        (policy_of(100_000), "spec.fail_over_after"),
        (policy_of(None, lost=1), "spec.max_lost_records"),
        (policy_of(None, lag_s=1), "spec.max_lag"),
        (policy_of(30, lost=-1), "spec.max_lost_records"),
        (policy_of(30, lag_s=-1), "spec.max_lag"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(spec: standbys.StandbySpec, field: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        begun(spec)
    assert refusal.value.field == field


def test_most_of_the_reporting_gateways_decide_that_a_cluster_is_away() -> None:
    assert not is_away({}, 30)
    assert is_away({"g1": 30}, 30)
    assert not is_away({"g1": 29.9}, 30)
    assert not is_away({"g1": 40, "g2": 0}, 30)
    assert is_away({"g1": 40, "g2": 31}, 30)
    assert is_away({"g1": 40, "g2": 31, "g3": 0}, 30)


def test_bounds_of_the_loss_forbid_a_fail_over_without_an_operator() -> None:
    apples, pears = topic_of("apples", False, (5, 9)), topic_of("pears", False, (5, 5))
    topics = [with_lag(apples), with_lag(pears)]
    assert obstacle(policy_of(30), [*topics, topic_of("figs")], {}) == ""
    assert obstacle(policy_of(30, lost=4), topics, {}) == ""
    assert obstacle(policy_of(30, lost=3), topics, {}) == "the copies lack 4 acknowledged records, and may lack 3"
    assert obstacle(policy_of(30, lost=9), [topic_of("figs")], {}) == "nobody knows how far the copy of figs is"
    assert obstacle(policy_of(30, lag_s=5), topics, {"apples": 5.0, "pears": 99}) == ""
    assert "was 5.1 s behind" in obstacle(policy_of(30, lag_s=5), topics, {"apples": 5.1})
    assert "nobody knows for how long" in obstacle(policy_of(30, lag_s=5), topics, {})
