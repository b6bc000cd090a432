"""Rules and calls in words, as meshctl and the console say them."""

from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from mesh.rpc import admin, routing
from mesh.wording import command_text, decision_text, match_text, rule_text


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (routing.RuleMatch(topic="orders"), "topic orders"),
        (routing.RuleMatch(topic_prefix="shop."), "prefix shop."),
        (routing.RuleMatch(unmatched_topics=True), "unmatched topics"),
        (routing.RuleMatch(group="g", client=routing.ClientMatch(client_id="x")), "group g for client id x"),
        (routing.RuleMatch(), "nothing"),
    ],
)
def test_a_match(match: routing.RuleMatch, text: str) -> None:
    assert match_text(match) == text


def test_a_decision() -> None:
    spec = routing.RuleSpec(target_cluster="c1", upstream_topic="shop.{topic}", shadow_topics=True)
    assert decision_text(spec) == "c1 as shop.{topic}, with shadow topics"
    single = routing.RuleSpec(match=routing.RuleMatch(client_software="k/1"), node_view=routing.NODE_VIEW_SINGLE)
    assert rule_text(single) == "client software k/1 -> a single node"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (admin.SetRuleRequest(match=routing.RuleMatch(topic="a"), target_cluster="c2"), "set topic a -> c2"),
        (admin.RemoveRuleRequest(name="rules/a"), "remove rule a"),
        (admin.RevertRequest(revision=7), "revert to revision 7"),
        (admin.RevertRequest(last=True), "revert the last change"),
        (admin.GetRuleRequest(name="rules/a"), "a command of a kind that this release does not know"),
    ],
)
def test_a_scheduled_command(request_: admin.SetRuleRequest, text: str) -> None:
    packed = AnyMessage()
    packed.Pack(request_)
    assert command_text(packed) == text
