"""When a topic came to live where: told from versions of rules."""

from __future__ import annotations

from dataclasses import replace

from mesh.routing import ClientMatch, ExactName, ForwardingRule, RuleVersion
from mesh.routing.codec import rule_to_proto
from mesh.rpc import events
from services.control.domain.past.history import homes_at, homes_if, turning_points
from services.control.presentation.sentences import place_text
from tests.unit.control.worlds import rule

ADA = ClientMatch(principal="User:ada")


def version(text: str, rank: float, since: int, until: int | None = None, rule_id: str = "") -> RuleVersion:
    return RuleVersion(rule(text, rule_id or text.partition("->")[0].strip("*~")), rank, since, until)


def for_ada(text: str, rank: float, since: int) -> RuleVersion:
    made = version(text, rank, since)
    assert isinstance(made.rule.match, ExactName)
    return replace(made, rule=replace(made.rule, match=replace(made.rule.match, client=ADA)))


def story(*versions: RuleVersion, topic: str = "orders", low: int = 0, high: int = 100) -> list[tuple[int, str]]:
    return [(at, place_text(homes, topic)) for at, homes in turning_points(versions, topic, low, high)]


def test_a_topic_moves_with_its_rule_and_ends_with_it() -> None:
    assert story(version("orders->c1", 1, 3, 5), version("orders->c2", 1, 5, 9)) == [(9, ""), (5, "c2"), (3, "c1")]


def test_another_name_is_another_place() -> None:
    renamed = version("orders->c1:shop.{topic}", 1, 5)
    assert story(version("orders->c1", 1, 3, 5), renamed) == [(5, "c1/shop.orders"), (3, "c1")]


def test_a_rule_in_front_takes_the_topic_and_gives_it_back() -> None:
    catch_all = version("or*->c1", 9, 2)
    assert story(catch_all, version("orders->c2", 1, 4, 6)) == [(6, "c1"), (4, "c2"), (2, "c1")]


def test_what_leads_to_the_same_place_and_what_stands_behind_is_no_turn() -> None:
    assert story(version("or*->c1", 2, 2), version("orders->c1", 1, 4), version("o*->c3", 5, 6)) == [(2, "c1")]
    assert story(version("pears->c1", 1, 2), version("group:orders->c2", 1, 3)) == []


def test_some_clients_elsewhere_are_a_turn_of_their_own() -> None:
    everybody, ada = version("orders->c1", 2, 3), for_ada("orders->c2", 1, 5)
    assert story(everybody, ada) == [(5, "c2 for principal User:ada, c1 for others"), (3, "c1")]
    assert story(everybody, for_ada("orders->c1", 1, 5)) == [(3, "c1")]
    assert story(for_ada("orders->c2", 1, 5)) == [(5, "c2 for principal User:ada")]


def test_only_what_lies_between_is_told() -> None:
    versions = (version("orders->c1", 1, 3, 5), version("orders->c2", 1, 5, 9), version("orders->c3", 1, 9))
    assert story(*versions, low=3, high=9) == [(5, "c2")]


def test_what_a_change_would_have_meant() -> None:
    versions = [version("orders->c1", 1, 3), version("pears->c1", 2, 3)]

    def would(*changes: events.RuleChange) -> str:
        return place_text(homes_if(versions, "orders", 8, events.RuleSetChanged(changes=changes)), "orders")

    def spec(of: ForwardingRule) -> events.RuleChange:
        return events.RuleChange(updated=rule_to_proto(of))

    assert place_text(homes_at(versions, "orders", 8), "orders") == "c1"
    assert would(spec(rule("orders->c2", "orders"))) == "c2"
    assert would(events.RuleChange(removed="orders")) == ""
    assert would(spec(rule("or*->c3", "pears")), events.RuleChange(moved="pears", rank=0.5)) == "c3"
    assert would(spec(rule("pears->c3", "pears"))) == "c1"
