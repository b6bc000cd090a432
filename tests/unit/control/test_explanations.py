"""Why something goes where it goes, in words."""

from __future__ import annotations

import pytest

from mesh.routing import RoutingTable, Subject
from services.control.presentation.explanations import tried_rules, why_unrouted, without_rule
from tests.unit.control.worlds import table

RULES = ("apples->c1", "group:shop*->c2", "ap*->c2", "txn:~pay-.+->c1", "client:kafkajs/*->")


@pytest.mark.parametrize(
    ("subject", "name", "reasons"),
    [
        (Subject.TOPIC, "apricots", ["the topic is not 'apples'", "the topic begins with 'ap'"]),
        (Subject.GROUP, "apples", ["the group does not begin with 'shop'"]),
        (Subject.TRANSACTIONAL_ID, "pay-1", ["the whole name matches 'pay-.+'"]),
        (Subject.CLIENT_SOFTWARE, "kafkajs/2", ["the client software begins with 'kafkajs/'"]),
    ],
)
def test_only_rules_about_the_same_thing_are_tried(subject: Subject, name: str, reasons: list[str]) -> None:
    assert [tried.reason for tried in tried_rules(table(*RULES), subject, name)] == reasons


@pytest.mark.parametrize(
    ("rules", "topic", "says"),
    [
        (("apples->c1",), "pears", "no rule matches"),
        (("apples->c9",), "apples", "cluster 'c9' is not registered"),
        (("pears->c1:apples", "ap*->c1"), "apples", "topic 'apples' of 'c1' is known to clients as 'pears'"),
        (("a*->c1:long-{topic}",), "a" * 245, "is no name that a topic of 'c1' can have"),
    ],
)
def test_why_a_topic_is_not_routed(rules: tuple[str, ...], topic: str, says: str) -> None:
    made = table(*rules)
    assert made.route(topic) is None
    decisive = next((tried.rule for tried in tried_rules(made, Subject.TOPIC, topic) if tried.matched), None)
    assert says in why_unrouted(made, topic, decisive)


def test_what_holds_without_a_rule() -> None:
    assert "the home cluster of the mesh, 'c1'" in without_rule(table(), Subject.TRANSACTIONAL_ID)
    assert without_rule(RoutingTable(), Subject.GROUP).endswith("else the home cluster of the mesh")
