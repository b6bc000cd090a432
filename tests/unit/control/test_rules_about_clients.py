"""Rules about some clients, and the default cluster: what is refused, what moves for whom, and how it is explained."""

from __future__ import annotations

import pytest

from mesh.routing import ClientIdentity, ClientMatch, ExactName, Match, Place, RoutingTable, Subject, UnmatchedTopics
from services.control.domain.errors import Exists, InvalidField, NotAllowed
from services.control.domain.rules.covers import covers, suspicions
from services.control.domain.rules.edits import Create, Replace, RuleFields, Set
from services.control.domain.rules.edits import Place as At
from services.control.domain.rules.kinds import KINDS_LOOKED_AT, kinds_of_clients
from services.control.domain.rules.moves import clusters_that_may_lose, planned_moves
from services.control.domain.rules.rule_set import RuleSet
from services.control.presentation.explanations import tried_rules
from tests.unit.control.worlds import clients, kinds, match, rule, rule_set, table, written


def created(known: tuple[str, ...], text: str, *, allow_shadowed: bool = False) -> RoutingTable:
    return rule_set(*known).change(Create(rule(text)), allow_shadowed=allow_shadowed).after


# --- one rule ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (ClientMatch(principal="alice"), "rule.match.client.principal"),
        (ClientMatch(client_id="a\0b"), "rule.match.client"),
        (ClientMatch(client_id="x" * 1990), "rule.match.client"),
        (ClientMatch(source_networks=tuple(f"10.{n}.{m}.0/24" for n in range(20) for m in range(0, 20, 2))),
         "rule.match.client"),
    ],
)  # fmt: skip
def test_what_can_not_be_asked_of_clients_is_refused(asked: ClientMatch, field: str) -> None:
    made = rule("apples->c1")
    with pytest.raises(InvalidField) as raised:
        rule_set().change(Create(type(made)("r", ExactName("x" * 100, client=asked), "c1")))
    assert raised.value.field == field


def test_one_match_for_two_kinds_of_clients_is_two_rules() -> None:
    after = created(("apples@a->c1", "apples@b->c1"), "apples->c2")
    assert written(after) == ["apples->c1", "apples->c1", "apples->c2"]
    with pytest.raises(Exists, match=r"the same match .*client id b"):
        created(("apples@a->c1", "apples@b->c1"), "apples@b->c2")


def test_set_finds_the_rule_of_the_same_clients() -> None:
    known = rule_set("apples@10.0.0.0/8->c1", "apples->c2")
    decision = known.change(Set(match("apples@10.0.0.0/8"), RuleFields(target_cluster="c3")))
    assert (kinds(decision), written(decision.after)) == (["updated"], ["apples->c3", "apples->c2"])


def test_rule_ids_of_one_match_are_numbered() -> None:
    decision = rule_set().change(Replace((rule("a@x->c1"), rule("a@y->c1"), rule("?->c1"), rule("?@x->c1"))))
    assert [each.rule_id for each in decision.after.rules] == ["a", "a-2", "default", "default-2"]


# --- rules that can never match --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "covered"),
    [
        ("ap*->c1", "apples@a->c2", True),
        ("ap*@a->c1", "apples->c2", False),
        ("ap*@a->c1", "apples@a->c2", True),
        ("ap*@a*->c1", "apples@a1->c2", True),
        ("ap*@a1->c1", "apples@a*->c2", False),
        ("ap*@10.0.0.0/8->c1", "app*@10.1.0.0/16->c2", True),
        ("ap*@10.1.0.0/16->c1", "app*@10.0.0.0/8->c2", False),
        ("~.*@a->c1", "?@a->c2", True),
        ("~.*@a->c1", "?->c2", False),
        ("~.*->c1", "?->c2", True),
    ],
)
def test_a_rule_is_covered_only_for_clients_that_the_first_one_is_about(first: str, second: str, covered: bool) -> None:
    if covered:
        with pytest.raises(NotAllowed, match="'r1'"):
            created((first,), second)
    assert len(created((first,), second, allow_shadowed=covered).rules) == 2


def test_two_names_for_one_topic_are_refused_where_a_client_could_see_both() -> None:
    for harmless in ("pears@b->c1:fruit", "apples->c1:fruit"):
        assert len(created(("apples@a->c1:fruit",), harmless).rules) == 2
    with pytest.raises(NotAllowed, match="clients know a topic by one name"):
        created(("apples@a->c1:fruit",), "pears->c1:fruit")


# --- the default cluster ---------------------------------------------------------------------------------------------


def test_a_default_cluster_is_last_wherever_it_is_placed_and_stays_so() -> None:
    decision = rule_set("apples->c1").change(Create(rule("?->c2"), At.FIRST))
    assert (written(decision.after), kinds(decision)) == (["apples->c1", "?->c2"], ["created"])
    grown = RuleSet(decision.after, 8).change(Create(rule("pears->c1")))
    assert (written(grown.after), kinds(grown)) == (["apples->c1", "pears->c1", "?->c2"], ["created"])
    assert grown.event is not None
    assert grown.event.needs_hold, "pears may live on the default cluster"


def test_a_default_cluster_needs_a_cluster() -> None:
    with pytest.raises(NotAllowed, match="'c9' is not registered"):
        created((), "?->c9")


def test_topics_move_from_the_default_cluster_to_the_rule_that_takes_them() -> None:
    before, after = table("?->c1"), table("orders*->c2", "?->c1")
    topics = {"c1": {"orders-1": 3, "others": 1}}
    assert clusters_that_may_lose(before, after) == {"c1"}
    [move] = planned_moves(before, after, topics)
    assert (move.topic, move.target, move.client) == ("orders-1", Place("c2", "orders-1"), None)
    assert [each.target for each in planned_moves(before, table(), topics)] == [None, None]


# --- moves -----------------------------------------------------------------------------------------------------------

THERE = {"c1": {"apples": 3, "a.apples": 1}, "c2": {"apples": 3}}


def moves(before: RoutingTable, after: RoutingTable) -> list[tuple[str, Place, Place | None, str]]:
    return [
        (each.topic, each.source, each.target, "" if each.client is None else str(each.client))
        for each in planned_moves(before, after, THERE)
    ]


ON_C1, ON_C2 = Place("c1", "apples"), Place("c2", "apples")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (["apples->c1"], ["apples@a->c2", "apples->c1"], [("apples", ON_C1, ON_C2, "client id a")]),
        (["apples->c1"], ["apples->c2"], [("apples", ON_C1, ON_C2, "")]),
        (["apples@a->c1", "apples->c1"], ["apples@a->c1", "apples->c2"], [("apples", ON_C1, ON_C2, "")]),
        (["apples@a->c1", "apples->c2"], ["apples->c2"], [("apples", ON_C1, ON_C2, "client id a")]),
        (["apples@a->c1"], [], [("apples", ON_C1, None, "client id a")]),
        (["apples->c1"], ["apples->c1", "apples@a->c2"], []),
        (
            ["apples@a->c1", "apples@10.0.0.0/8->c2"],
            ["apples@10.0.0.0/8->c2", "apples@a->c1"],
            [("apples", ON_C1, ON_C2, "client id a, from 10.0.0.0/8")],
        ),
        (
            ["?@a->c1:a.{topic}"],
            ["apples@a->c2", "?@a->c1:a.{topic}"],
            [("apples", Place("c1", "a.apples"), ON_C2, "client id a")],
        ),
        (
            ["apples@a1->c2", "apples->c1"],
            ["apples@a1->c2", "apples@a*->c2", "apples->c1"],
            [("apples", ON_C1, ON_C2, "client id prefix a")],
        ),
        (["group:g@a->c1"], ["group:g@a->c2"], []),
    ],
)
def test_a_move_says_for_whom(
    before: list[str], after: list[str], expected: list[tuple[str, Place, Place | None, str]]
) -> None:
    assert moves(table(*before), table(*after)) == expected


def test_every_move_of_any_client_is_found() -> None:
    """By the kinds that are looked at, against all clients that there could be."""
    rules = ("a*@x*->c1", "apples@10.0.0.0/8->c2", "apples@x1->c3", "~.*@x2->c2", "?->c1")
    wide = {f"c{n}": {"apples": 1, "avocados": 1} for n in (1, 2, 3)}
    everyone = [
        ClientIdentity(client_id=client_id, address=address)
        for client_id in ("", "x", "x1", "x2", "y")
        for address in ("", "10.1.1.1", "11.1.1.1")
    ]
    for skipped in range(len(rules)):
        for first in range(len(rules)):
            before = table(*rules)
            others = [each for number, each in enumerate(rules) if number not in (skipped, first)]
            after = table(rules[first], *others)
            found = {(move.topic, move.source, move.target) for move in planned_moves(before, after, wide)}
            for client in everyone:
                old, new = before.for_client(client), after.for_client(client)
                for topic in ("apples", "avocados"):
                    left, entered = old.route(topic), new.route(topic)
                    if left is None or (entered is not None and entered.cluster == left.cluster):
                        continue
                    target = None if entered is None else Place(entered.cluster, topic)
                    assert (topic, Place(left.cluster, topic), target) in found


def test_kinds_of_clients_are_bounded_and_the_rest_is_counted() -> None:
    many = [f"apples@a{number}->c1" for number in range(KINDS_LOOKED_AT + 20)]
    found = kinds_of_clients(table(*many, "apples->c1"), table(*many, "apples->c2"))
    assert (len(found.looked_at), found.looked_at[0], found.left_out) == (KINDS_LOOKED_AT, None, 21)


def test_one_more_tenant_concerns_no_other() -> None:
    tenants = [f"?@{number}-*->c1:{number}.{{topic}}" for number in range(1000)]
    found = kinds_of_clients(table(*tenants), table(*tenants, "?@new-*->c1:new.{topic}"))
    assert found.looked_at == (clients("new-*"),)


def test_a_change_for_some_clients_asks_only_clusters_whose_clients_it_concerns() -> None:
    before, after = table("apples@a->c1", "apples@b->c3"), table("apples@b->c2", "apples@a->c1", "apples@b->c3")
    assert clusters_that_may_lose(before, after) == {"c3"}


# --- expressions that cover ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "warned"),
    [
        (["ord*->c1"], ["~.*-eu->c2", "ord*->c1"], {"r2"}),
        (["~.*-eu->c2"], ["~.*-eu->c2", "ord*->c1"], {"r2"}),
        (["~.*-eu->c2", "ord*->c1"], ["~.*-eu->c2", "ord*->c1", "x->c1"], set()),
        ([], ["ord*->c1", "~.*-eu->c2"], set()),
        ([], ["~.*-us->c2", "ord*->c1"], set()),
        ([], ["~.*-eu@a->c2", "ord*->c1"], set()),
        ([], ["~.*-eu@a*->c2", "ord*@a1->c1"], {"r2"}),
        ([], ["~.*-eu->c2", "no-topic-yet*->c1"], set()),
    ],
)
def test_an_expression_that_takes_all_topics_of_a_rule_is_warned_of(
    before: list[str], after: list[str], warned: set[str]
) -> None:
    old, new = table(*before), table(*after)
    topics = {"c1": ["orders-eu", "ordinals-eu", "others-us", "__consumer_offsets"]}
    found = covers(suspicions(old, new), old, topics)
    assert {cover.behind.rule_id for cover in found} == warned


def test_the_warning_names_both_rules_and_topics() -> None:
    old, new = table("ord*->c1"), table("~.*-eu->c2", "ord*->c1")
    [cover] = covers(suspicions(old, new), old, {"c1": ["orders-eu"]})
    assert str(cover) == (
        "rule 'r2' (prefix ord) decides about no topic that there is today: rule 'r1' (regex .*-eu) comes first and "
        "takes the only topic that it matches (orders-eu); place it before 'r1' if that is not meant"
    )


# --- explain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "client", "reason"),
    [
        (
            ClientMatch(source_networks=("10.0.0.0/8", "192.168.0.0/16")),
            ClientIdentity(address="127.0.0.1"),
            "is only for clients from 10.0.0.0/8 or 192.168.0.0/16; this one comes from 127.0.0.1",
        ),
        (
            ClientMatch(client_id_prefix="shop-"),
            ClientIdentity(),
            "is only for clients whose client id begins with 'shop-'; this one has no client id that was said",
        ),
        (
            ClientMatch(client_id="a", software_name="sarama"),
            ClientIdentity(client_id="a", software_name="librdkafka"),
            "is only for clients of software 'sarama'; this one has software 'librdkafka'",
        ),
        (
            ClientMatch(principal="User:alice"),
            ClientIdentity(),
            "is only for clients of User:alice; this one is User:ANONYMOUS",
        ),
        (ClientMatch(client_id="a"), ClientIdentity(client_id="a"), "the topic is 'apples'"),
        (
            ClientMatch(source_networks=("10.0.0.0/8",)),
            ClientIdentity(),
            "is only for clients from 10.0.0.0/8; this one comes from an address that was not said",
        ),
    ],
)
def test_a_rule_that_is_not_for_the_client_says_so(asked: ClientMatch, client: ClientIdentity, reason: str) -> None:
    rules = table("apples->c1", "?->c2")
    [first, default] = rules.versions
    about_some: Match = ExactName("apples", client=asked)
    changed = RoutingTable(
        7, rules.clusters.values(), [type(first)(type(first.rule)("r1", about_some, "c1"), 1.0, 1), default]
    )
    tried = tried_rules(changed, Subject.TOPIC, "apples", client)
    assert tried[0].reason == reason
    assert tried[0].matched is asked.holds_for(client)
    if not tried[0].matched:
        assert (tried[1].matched, tried[1].reason) == (True, "no other rule matches the topic")
        assert isinstance(tried[1].rule.match, UnmatchedTopics)


def test_a_name_that_does_not_match_is_the_reason_whoever_asks() -> None:
    [tried] = tried_rules(table("apples@a->c1"), Subject.TOPIC, "pears", ClientIdentity())
    assert tried.reason == "the topic is not 'apples'"
