"""What the rule set aggregate accepts, refuses and decides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.routing import InvalidRuleError, NodeView
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed, Unknown
from services.control.domain.rules.edits import Before, Create, Place, Remove, Replace, RuleFields, Set, Update
from services.control.domain.rules.edits import Reorder as Move
from services.control.domain.rules.ranks import STEP
from services.control.domain.rules.rule_set import RuleSet
from tests.unit.control.worlds import after, kinds, match, rule, rule_set, table, written


def to(cluster: str) -> RuleFields:
    return RuleFields(target_cluster=cluster)


def test_a_new_rule_goes_last_unless_a_place_is_given() -> None:
    rules = rule_set("apples->c1", "bananas->c2")
    assert after(rules.change(Create(rule("cherries->c3")))) == ["apples->c1", "bananas->c2", "cherries->c3"]
    assert after(rules.change(Create(rule("cherries->c3"), Place.FIRST))) == [
        "cherries->c3",
        "apples->c1",
        "bananas->c2",
    ]
    assert after(rules.change(Create(rule("cherries->c3"), Before("r2")))) == [
        "apples->c1",
        "cherries->c3",
        "bananas->c2",
    ]


@pytest.mark.parametrize(
    ("text", "rule_id"),
    [
        ("apples->c1", "apples"),
        ("apples*->c1", "apples-prefix"),
        ("~apples.+->c1", "apples-regex"),
        ("~.*->c1", "regex"),
        ("Big_Apples.v1->c1", "big-apples-v1"),
    ],
)
def test_a_rule_id_is_made_from_the_match(text: str, rule_id: str) -> None:
    decision = rule_set().change(Create(rule(text)))
    assert decision.changed_ids == [rule_id]


def test_made_rule_ids_are_unique() -> None:
    rules = RuleSet(rule_set().change(Create(rule("a.b->c1"))).after, 8)
    assert rules.change(Create(rule("a_b->c1"))).changed_ids == ["a-b-2"]


def test_an_unknown_target_is_named_with_the_known_ones() -> None:
    with pytest.raises(NotAllowed, match=r"rule 'apples': target cluster 'c9' is not registered \(known: c1, c2, c3\)"):
        rule_set().change(Create(rule("apples->c9")))


def test_the_same_match_twice_is_refused_with_the_name_of_the_other_rule() -> None:
    with pytest.raises(Exists, match="rule 'r1' has the same match"):
        rule_set("apples->c1").change(Create(rule("apples->c2")))


def test_a_rule_id_is_used_once() -> None:
    with pytest.raises(Exists, match="'r1' exists"):
        rule_set("apples->c1").change(Create(rule("bananas->c2", "r1")))


@pytest.mark.parametrize(
    ("first", "second"),
    [("ap*->c1", "apples->c2"), ("ap*->c1", "app*->c2"), ("~a.*->c1", "apples->c2"), ("~.*->c1", "b*->c2")],
)
def test_a_rule_that_can_never_match_is_refused_with_the_name_of_the_one_that_covers_it(
    first: str, second: str
) -> None:
    with pytest.raises(NotAllowed, match="would never match: rule 'r1'") as refused:
        rule_set(first).change(Create(rule(second)))
    assert refused.value.kind == "RULE_SHADOWED"
    assert after(rule_set(first).change(Create(rule(second)), allow_shadowed=True)) == [first, second]
    assert after(rule_set(first).change(Create(rule(second), Place.FIRST))) == [second, first]


def test_a_rule_placed_in_front_must_not_shadow_those_behind() -> None:
    with pytest.raises(NotAllowed, match=r"rule 'r1' \(topic apples\) would never match"):
        rule_set("apples->c1").change(Create(rule("ap*->c2"), Place.FIRST))


def test_a_rule_that_was_shadowed_before_hinders_no_other_change() -> None:
    assert after(rule_set("ap*->c1", "apples->c2").change(Create(rule("b->c1")))) == ["ap*->c1", "apples->c2", "b->c1"]


@pytest.mark.parametrize("rule_id", ["Apples", "a b", "x" * 64, "a/b"])
def test_a_wrong_rule_id_is_refused(rule_id: str) -> None:
    with pytest.raises(InvalidField, match=r"rule\.rule_id"):
        rule_set().change(Create(rule("apples->c1", rule_id)))


@pytest.mark.parametrize("name", ["a b", "..", "äpfel"])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidField, match="topic"):
        rule_set().change(Create(rule(f"{name}->c1")))


def test_a_wrong_expression_is_refused() -> None:
    with pytest.raises(InvalidRuleError, match="not an RE2 expression"):
        rule_set().change(Create(rule("~(->c1")))


def test_set_retargets_the_rule_with_that_match_in_its_place() -> None:
    rules = rule_set("apples->c1", "bananas->c2")
    decision = rules.change(Set(match("apples"), to("c2")))
    assert after(decision) == ["apples->c2", "bananas->c2"]
    assert kinds(decision) == ["updated"]


def test_set_adds_a_rule_where_none_has_that_match() -> None:
    assert after(rule_set("apples->c1").change(Set(match("bananas"), to("c2"), Place.FIRST))) == [
        "bananas->c2",
        "apples->c1",
    ]


def test_move_touches_only_the_rule_that_moves() -> None:
    rules = rule_set("a->c1", "b->c1", "c->c1", "d->c1")
    decision = rules.change(Move("r4", Before("r2")))
    assert after(decision) == ["a->c1", "d->c1", "b->c1", "c->c1"]
    assert kinds(decision) == ["moved"]


@pytest.mark.parametrize("place", [Place.LAST, Before("r2")])
def test_a_move_to_where_it_is_changes_nothing(place: Place | Before) -> None:
    assert rule_set("a->c1", "b->c1").change(Move("r2", place)).event is None


def test_setting_what_is_there_changes_nothing() -> None:
    assert rule_set("apples->c1").change(Set(match("apples"), to("c1"))).event is None


def test_update_changes_match_and_target_in_place() -> None:
    rules = rule_set("apples->c1", "bananas->c2")
    assert after(rules.change(Update("r1", RuleFields(match=match("pears"), target_cluster="c3")))) == [
        "pears->c3",
        "bananas->c2",
    ]


def test_remove() -> None:
    decision = rule_set("apples->c1", "bananas->c2").change(Remove("r1"))
    assert after(decision) == ["bananas->c2"]
    assert decision.removed_ids == ["r1"]


def test_an_unknown_rule_is_named_with_the_known_ones() -> None:
    with pytest.raises(Unknown, match=r"'r9' does not exist \(known: r1\)"):
        rule_set("apples->c1").change(Remove("r9"))


def test_replace_keeps_the_ids_of_matches_that_stay() -> None:
    rules = rule_set("apples->c1", "bananas->c2", "cherries->c3")
    decision = rules.change(Replace((rule("cherries->c3"), rule("dates*->c1"), rule("apples->c2", "other-id"))))
    assert after(decision) == ["cherries->c3", "dates*->c1", "apples->c2"]
    assert [each.rule_id for each in decision.after.rules] == ["r3", "dates-prefix", "r1"]
    assert decision.removed_ids == ["r2"]


def test_replace_by_the_same_rules_changes_nothing() -> None:
    assert rule_set("apples->c1", "b*->c2").change(Replace((rule("apples->c1"), rule("b*->c2")))).event is None


def test_another_revision_than_expected_is_refused() -> None:
    rules = rule_set("apples->c1")
    rules.expect(0)
    rules.expect(7)
    with pytest.raises(Conflict, match="at revision 7, not 5"):
        rules.expect(5)


def test_appending_holds_nothing_and_retargeting_holds() -> None:
    rules = rule_set("apples->c1")
    appended, retargeted = (
        rules.change(Create(rule("bananas->c2"))).event,
        rules.change(Set(match("apples"), to("c2"))).event,
    )
    assert appended is not None
    assert retargeted is not None
    assert not appended.needs_hold
    assert retargeted.needs_hold


def test_ranks_are_spread_again_when_neighbours_come_too_close() -> None:
    close = rule_set("a->c1", "b->c1", ranks=(1.0, 1.0 + 1e-6))
    decision = close.change(Create(rule("c->c1"), Before("r2")))
    assert after(decision) == ["a->c1", "c->c1", "b->c1"]
    assert [version.rank for version in decision.after.living] == [STEP, 2 * STEP, 3 * STEP]


def test_hundreds_of_rules_squeezed_into_one_place_keep_their_order() -> None:
    rules = rule_set("first->c1", "last->c1")
    for number in range(300):
        rules = RuleSet(rules.change(Create(rule(f"t{number}->c1"), Before("r2"))).after, 8)
    expected = ["first->c1", *(f"t{number}->c1" for number in range(300)), "last->c1"]
    assert written(rules.table) == expected


names = st.lists(st.sampled_from([f"t{number}" for number in range(12)]), unique=True, max_size=12)


@given(names, names)
def test_any_list_becomes_any_other(old: list[str], new: list[str]) -> None:
    rules = RuleSet(table(*(f"{name}->c1" for name in old)), 7)
    decision = rules.change(Replace(tuple(rule(f"{name}->c2") for name in new)))
    if decision.event is None:
        assert old == new == []
    else:
        assert after(decision) == [f"{name}->c2" for name in new]
        ranks = [version.rank for version in decision.after.living]
        assert ranks == sorted(set(ranks))


VIEW: dict[str, Any] = {"node_view": NodeView.SINGLE}


@pytest.mark.parametrize(
    ("text", "fields", "rule_id"),
    [
        ("group:shop*->c1", {"shadow_topics": True}, "shop-group-prefix"),
        ("group:Shop/Checkout \N{MIDDLE DOT} EU->c1", {}, "shop-checkout-eu-group"),
        ("txn:~pay-\\d+->c1", {"span_clusters": True}, "pay-d-txn-regex"),
        ("client:librdkafka/*->", VIEW, "librdkafka-client-prefix"),
        ("orders->c1:shop.{topic}", {}, "orders"),
        ("x" * 100 + "*->c1", {}, "x" * 48 + "-prefix"),
    ],
)
def test_rules_are_about_more_than_topics(text: str, fields: dict[str, Any], rule_id: str) -> None:
    decision = rule_set("apples->c2").change(Create(rule(text, **fields)))
    assert decision.changed_ids == [rule_id]
    assert decision.event is not None
    assert not decision.event.needs_hold
    made = decision.after.rules[-1]
    assert made == rule(text, rule_id, **fields)


@pytest.mark.parametrize(
    ("text", "fields", "field", "says"),
    [
        ("client:kafkajs/*->c1", VIEW, "rule.target_cluster", "has none; leave it empty"),
        ("client:kafkajs/*->", {}, "rule.node_view", "NODE_VIEW_SINGLE or _PER_CLUSTER"),
        ("group:shop->", {}, "rule.target_cluster", r"is missing; name a cluster \(known: c1, c2, c3\)"),
        ("apples->", {}, "rule.target_cluster", "is missing"),
        ("group:a\0b->c1", {}, "rule.match.group", "character NUL"),
        (f"txn:{'x' * 2001}->c1", {}, "rule.match.transactional_id", "more than 2000 bytes"),
        (f"~{'x' * 2001}->c1", {}, "rule.match.topic_regex", "more than 2000 bytes"),
        (f"orders->c1:{'x' * 243}.{{topic}}", {}, "rule.upstream_topic", "250 characters"),
        (f"{'o' * 100}*->c1:{'x' * 150}{{topic}}", {}, "rule.upstream_topic", "250 characters"),
        ("orders->c1:..", {}, "rule.upstream_topic", "no topic can be called"),
        ("orders->c1:__consumer_offsets", {}, "rule.upstream_topic", "the cluster's own"),
        ("~.*->c1:__{topic}", {}, "rule.upstream_topic", "the cluster's own"),
        ("mesh.events->c1", {}, "rule.match.topic", "the mesh's own"),
        ("mesh.record-p*->c1", {}, "rule.match.topic_prefix", "the mesh's own"),
        ("orders->c1:mesh.audit", {}, "rule.upstream_topic", "the mesh's own"),
    ],
)
def test_what_a_rule_of_its_kind_cannot_be_is_refused(text: str, fields: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(InvalidField, match=says) as refused:
        rule_set().change(Create(rule(text, "r", **fields)))
    assert refused.value.field == field


def test_a_field_of_another_kind_of_rule_is_refused() -> None:
    with pytest.raises(InvalidRuleError, match="only rules about a group have shadow_topics") as refused:
        rule_set("apples->c1").change(Update("r1", RuleFields(shadow_topics=True)))
    assert refused.value.field_name == "shadow_topics"


def test_rules_about_different_subjects_may_have_the_same_text_and_hide_nothing() -> None:
    rules = rule_set("~.*->c1", "group:~.*->c1", "txn:shop->c2")
    assert after(rules.change(Create(rule("group:shop->c2"), Place.FIRST)))[0] == "shop->c2"
    with pytest.raises(NotAllowed, match=r"rule 'r2' \(group regex \.\*\) comes first"):
        rules.change(Create(rule("group:shop->c2")))
    with pytest.raises(Exists, match=r"same match \(transactional_id shop\)"):
        rules.change(Create(rule("txn:shop->c1")))


def test_set_keeps_what_it_does_not_say() -> None:
    rules = RuleSet(rule_set().change(Create(rule("orders->c1:shop.{topic}", "r1"))).after, 8)
    moved = rules.change(Set(match("orders"), to("c2")))
    assert moved.after.rules == (rule("orders->c2:shop.{topic}", "r1"),)
    renamed = rules.change(Set(match("orders"), RuleFields(upstream_topic="")))
    assert renamed.after.rules == (rule("orders->c1", "r1"),)
    groups = RuleSet(rule_set().change(Create(rule("group:shop->c1", "r1"))).after, 8)
    assert groups.change(Set(match("group:shop"), RuleFields(shadow_topics=True))).after.rules[0].target_cluster == "c1"


@pytest.mark.parametrize("text", ["group:shop->c2", "txn:shop->c2", "client:shop->"])
def test_only_rules_about_topics_are_held(text: str) -> None:
    rules = rule_set("apples->c1", text.replace("c2", "c1"))
    retargeted = rules.change(
        Set(match(text.partition("->")[0]), to("c2") if "c2" in text else RuleFields(node_view=NodeView.SINGLE))
    )
    moved_first = rules.change(Move("r2", Place.FIRST))
    for decision in (retargeted, moved_first, rules.change(Remove("r2"))):
        assert decision.event is not None
        assert not decision.event.needs_hold


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("orders->c1:shop.orders", "bills->c1:shop.orders"),
        ("orders->c1:shop.{topic}", "bills->c1:shop.orders"),
        ("shop.orders->c1", "bills->c1:shop.orders"),
        ("eu.*->c1:all.{suffix}", "us.*->c1:all.{suffix}"),
    ],
)
def test_two_names_for_one_topic_are_refused(first: str, second: str) -> None:
    with pytest.raises(NotAllowed, match=r"rule 'r1' .* clients know a topic by one name") as refused:
        rule_set(first).change(Create(rule(second)))
    assert refused.value.kind == "UPSTREAM_TOPIC_TAKEN"
    elsewhere = second.replace("c1", "c2")
    assert rule_set(first).change(Create(rule(elsewhere))).event is not None


def test_a_template_is_a_move_and_is_held() -> None:
    decision = rule_set("orders->c1").change(Update("r1", RuleFields(upstream_topic="shop.{topic}")))
    assert decision.event is not None
    assert decision.event.needs_hold


def test_several_edits_are_one_change_and_checked_when_all_are_done() -> None:
    rules = rule_set("ap*->c1", "bananas->c2")
    decision = rules.change(
        Create(rule("apples->c2", "new")),  # covered by r1 until that is gone
        Remove("r1"),
        Set(match("bananas"), to("c3")),
        Move("new", Place.LAST),
    )
    assert after(decision) == ["bananas->c3", "apples->c2"]
    assert (decision.changed_ids, decision.removed_ids) == (["r2", "new"], ["r1"])


def test_an_edit_sees_what_those_before_it_did() -> None:
    decision = rule_set().change(
        Create(rule("apples->c1")), Update("apples", to("c2")), Create(rule("pears->c1"), Before("apples"))
    )
    assert after(decision) == ["pears->c1", "apples->c2"]


def test_edits_that_undo_each_other_change_nothing() -> None:
    assert rule_set("apples->c1").change(Create(rule("pears->c1")), Remove("pears")).event is None


def test_one_edit_that_cannot_be_refuses_all() -> None:
    with pytest.raises(Unknown, match="'r9' does not exist"):
        rule_set("apples->c1").change(Create(rule("pears->c1")), Remove("r9"))
