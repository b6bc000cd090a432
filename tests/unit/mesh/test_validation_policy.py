"""The rules of validation follow from events, and travel with the table."""

from __future__ import annotations

import pytest

from mesh.routing import InvalidRuleError, RoutingState
from mesh.routing.codec import format_needed, table_from_proto, table_to_proto
from mesh.routing.policies import VALIDATION_POLICY
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.routing.table_bytes import TableBytes
from mesh.rpc import events, routing, validation
from mesh.validation import Rule
from mesh.validation.codec import policy_from_proto, rule_to_proto
from tests.unit.router.decisions import DecisionLog, two_clusters

SMALL = Rule("small", "orders", max_message_bytes=1000)
SAFE = Rule("safe", "", is_prefix=True, acks_all=True)


def log_with(*decisions: list[Rule | str]) -> DecisionLog:
    log = two_clusters()
    for rules in decisions:
        changes = [
            validation.ValidationRuleChange(rule_id=each)
            if isinstance(each, str)
            else validation.ValidationRuleChange(rule_id=each.rule_id, rule=rule_to_proto(each))
            for each in rules
        ]
        event = events.ValidationRulesChanged(changes=changes)
        log.about_policies(events.Event(validation_rules_changed=event))
    return log


def rules_of(state: RoutingState) -> tuple[Rule, ...]:
    return policy_from_proto(state.effective.policies.validation_policy).rules


def test_rules_come_change_and_go_at_once_also_during_a_rollout() -> None:
    assert two_clusters().state.effective.policies.validation_policy is None
    log = log_with([SMALL, SAFE], ["small"])
    assert rules_of(log.state) == (SAFE,)
    log.move("apples", to="c2")
    changed = events.ValidationRulesChanged(changes=[validation.ValidationRuleChange(rule_id="safe")])
    log.about_policies(events.Event(validation_rules_changed=changed))
    assert log.state.pending is not None
    assert log.state.pending.policies.validation_policy == log.state.effective.policies.validation_policy
    log.switch()
    assert rules_of(log.state) == ()


def test_a_table_and_a_state_with_rules_come_back_from_their_bytes() -> None:
    state = log_with([SMALL, SAFE]).state
    assert table_from_proto(table_to_proto(state.effective)) == state.effective
    assert table_from_proto(routing.RoutingTable.FromString(TableBytes().of(state.effective))) == state.effective
    assert state_from_proto(state_to_proto(state)) == state
    assert format_needed(state.effective) == VALIDATION_POLICY.table_format


@pytest.mark.parametrize("of_a_newer_release", [b"\xa0\x06\x01", b"\x20\x63", b"\x28\x63"])
def test_a_rule_that_is_not_fully_known_is_refused_with_its_table(of_a_newer_release: bytes) -> None:
    """A field, a mode, and a compression type."""
    message = table_to_proto(log_with([SMALL]).state.effective)
    message.validation_policy.rules[0].MergeFromString(of_a_newer_release)
    with pytest.raises(InvalidRuleError, match="newer release") as refusal:
        table_from_proto(message)
    assert refusal.value.field_name == "validation_policy"
