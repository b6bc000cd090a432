"""Bringing back the rules of an earlier revision."""

from __future__ import annotations

import pytest

from mesh.routing import RoutingTable
from mesh.routing.fold import with_changes
from services.control.domain.errors import NotAllowed
from services.control.domain.rules.edits import Before, Create, Edit, Place, Remove, RuleFields, Set, Update
from services.control.domain.rules.edits import Reorder as Move
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision
from tests.unit.control.worlds import after, kinds, match, rule, rule_set, written


class Decided:
    """A rule set with a past: each change is a revision, from 8 on."""

    def __init__(self, *rules: str) -> None:
        self.rules = rule_set(*rules)
        self.past = {7: self.rules.table.living}

    def by(self, *edits: Edit) -> Decided:
        return self._with(self.rules.change(*edits, allow_shadowed=True))

    def back_to(self, revision: int) -> RuleSetDecision:
        rules = tuple(version.rule for version in self.past[revision])
        return self.rules.bring_back(rules, revision)

    def reverted(self, revision: int) -> Decided:
        return self._with(self.back_to(revision))

    def _with(self, decision: RuleSetDecision) -> Decided:
        assert decision.event is not None
        revision = self.rules.revision + 1
        self.rules = RuleSet(with_changes(decision.before, revision, decision.event.changes), revision)
        self.past[revision] = self.rules.table.living
        return self

    @property
    def ids(self) -> list[str]:
        return [each.rule_id for each in self.rules.table.rules]


def to(cluster: str) -> RuleFields:
    return RuleFields(target_cluster=cluster)


def test_rules_come_back_with_their_ids_order_and_all_they_say() -> None:
    mesh = Decided("a->c1", "group:b->c2", "c*->c3:x.{topic}")
    mesh.by(Remove("r2"), Update("r3", RuleFields(upstream_topic="")), Move("r3", Place.FIRST), Create(rule("d->c1")))
    decision = mesh.back_to(7)
    assert decision.event is not None
    assert decision.event.reverted_to == 7
    assert mesh.reverted(7).rules.table.rules == rule_set("a->c1", "group:b->c2", "c*->c3:x.{topic}").table.rules


def test_a_revert_that_moves_topics_is_held_like_any_change() -> None:
    decision = Decided("a->c1").by(Set(match("a"), to("c2"))).back_to(7)
    assert decision.event is not None
    assert decision.event.needs_hold
    assert kinds(decision) == ["updated"]
    assert after(decision) == ["a->c1"]


def test_a_revert_is_reverted_like_any_change() -> None:
    mesh = Decided("a->c1", "b->c1").by(Move("r2", Place.FIRST), Set(match("a"), to("c3")))
    there = mesh.rules.table.rules
    assert mesh.reverted(7).reverted(8).rules.table.rules == there


def test_the_order_comes_back_where_ranks_have_been_spread_anew() -> None:
    mesh = Decided("first->c1", "last->c1")
    for number in range(60):  # halves the distance until all ranks are given anew
        mesh.by(Create(rule(f"t{number}->c1"), Before("r2")))
    ranks = {version.rank for version in mesh.rules.table.living}
    assert written(mesh.reverted(38).rules.table) == [
        "first->c1",
        *(f"t{number}->c1" for number in range(31)),
        "last->c1",
    ]
    assert {version.rank for version in mesh.rules.table.living} <= ranks


def test_what_is_in_force_already_changes_nothing() -> None:
    assert Decided("a->c1").back_to(7).event is None
    assert Decided("a->c1").by(Remove("r1")).reverted(7).back_to(7).event is None


def test_an_id_that_was_given_again_is_its_old_rule_again() -> None:
    mesh = Decided("a->c1").by(Remove("r1")).by(Create(rule("z->c2", "r1")))
    assert after(mesh.back_to(7)) == ["a->c1"]


def test_rules_that_were_accepted_although_they_never_match_come_back() -> None:
    mesh = Decided("ap*->c1", "apples->c2").by(Remove("r2"))
    assert after(mesh.back_to(7)) == ["ap*->c1", "apples->c2"]


def test_a_rule_whose_cluster_has_been_removed_is_named() -> None:
    mesh = Decided("a->c1", "b->c3").by(Remove("r2"))
    clusters = [cluster for cluster in mesh.rules.table.clusters.values() if cluster.name != "c3"]
    mesh.rules = RuleSet(RoutingTable(9, clusters, mesh.rules.table.living), 9)
    with pytest.raises(NotAllowed, match=r"rule 'r2' leads to cluster 'c3', which has been removed") as refused:
        mesh.back_to(7)
    assert refused.value.subject == "rules/r2"
