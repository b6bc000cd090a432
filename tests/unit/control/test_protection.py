"""The rules of protection that control takes, and those that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.protection.codec import policy_from_proto, rule_to_proto
from mesh.protection.rule import Others, Rule, What
from mesh.rpc import events, protection
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.protection.rules import MOST_RULES, change_rules
from services.control.presentation.protection import changed

PII = Rule("pii", "orders", what=What.JSON, fields=("email",), key_id="pii", readers=("User:crm",))
CARDS = Rule("cards", "pay.", is_prefix=True, key_id="cards", others=Others.REFUSAL, origin_topics=("old",))
NOTHING = protection.ProtectionPolicy()


def change(rule: Rule) -> protection.ProtectionRuleChange:
    return protection.ProtectionRuleChange(rule_id=rule.rule_id, rule=rule_to_proto(rule))


def removed(rule_id: str) -> protection.ProtectionRuleChange:
    return protection.ProtectionRuleChange(rule_id=rule_id)


def policy(*rules: Rule) -> protection.ProtectionPolicy:
    return protection.ProtectionPolicy(rules=map(rule_to_proto, rules))


def json_rule(**more: Any) -> Rule:
    return Rule("r", "pears", **{"what": What.JSON, "fields": ("a",), **more})


def test_changes_that_are_so_already_make_no_event() -> None:
    assert change_rules(policy(PII), [change(PII), removed("other")]) is None
    event = change_rules(policy(PII), [change(PII), change(CARDS)])
    assert event is not None
    assert list(changed(events.Event(protection_rules_changed=event))) == [
        "protection: rule cards: for topics 'pay.'* the value is encrypted by key 'cards', nobody reads it, others get "
        "a refusal, copies of old"
    ]
    event = change_rules(policy(PII), [removed("pii")])
    assert event is not None
    assert list(changed(events.Event(protection_rules_changed=event))) == ["protection: rule pii is removed"]


def test_rules_come_back_from_their_messages() -> None:
    assert policy_from_proto(policy(PII, CARDS)).rules == (CARDS, PII)


def test_no_two_rules_protect_the_same() -> None:
    other = Rule("all", "", is_prefix=True, what=What.JSON, fields=("email.host",))
    with pytest.raises(NotAllowed, match=r"rule 'all' and rule 'pii' would both protect field email\.host"):
        change_rules(policy(PII), [change(other)])
    assert change_rules(policy(PII), [change(other), removed("pii")]) is not None
    with pytest.raises(NotAllowed, match="the whole value"):
        change_rules(NOTHING, [change(PII), change(Rule("whole", "orders", key_id="k"))])


def test_there_is_a_bound_on_rules() -> None:
    many = policy(*(Rule(f"r{number}", f"t{number}", key_id="k") for number in range(MOST_RULES)))
    with pytest.raises(NotAllowed, match="1001 rules of protection"):
        change_rules(many, [change(PII)])


@pytest.mark.parametrize(
    ("wanted", "field", "text"),
    [
        (change(Rule("Pii", "orders", key_id="k")), "changes[0].rule_id", "is no id"),
        (change(Rule("r", "no topic", key_id="k")), "changes[0].rule.topic", "no name of topics"),
        (change(Rule("r", "orders", key_id="no key")), "changes[0].rule.key_id", "no id of a key"),
        (change(Rule("r", "orders", others=Others.CIPHERTEXT)), "changes[0].rule.others", "encrypts nothing"),
        (change(Rule("r", "orders", fields=("a",))), "changes[0].rule.fields", "the whole value"),
        (change(json_rule(fields=())), "changes[0].rule.fields", "0 paths, and 1 to 32"),
        (change(json_rule(fields=("a..b",))), "changes[0].rule.fields[0]", "at character 2"),
        (change(json_rule(fields=("a", "['a'].b"))), "changes[0].rule.fields", "leads through it"),
        (change(json_rule(readers=("crm",))), "changes[0].rule.readers", "User:NAME or Group:NAME"),
        (change(json_rule(readers=("User:a", "User:a"))), "changes[0].rule.readers", "twice"),
        (change(json_rule(origin_topics=("no topic",))), "changes[0].rule.origin_topics", "names of topics"),
        (
            protection.ProtectionRuleChange(rule_id="r", rule=protection.ProtectionRule(rule_id="r", topic="orders")),
            "changes[0].rule",
            "say all of them",
        ),
        (protection.ProtectionRuleChange(rule_id="r", rule=rule_to_proto(PII)), "changes[0].rule.rule_id", "is 'pii'"),
    ],
)
def test_a_rule_that_no_gateway_could_follow_is_refused(
    wanted: protection.ProtectionRuleChange, field: str, text: str
) -> None:
    with pytest.raises(InvalidField, match=text) as refused:
        change_rules(NOTHING, [wanted])
    assert refused.value.field == field


def test_changes_are_bounded_and_each_rule_is_named_once() -> None:
    with pytest.raises(InvalidField, match="is empty"):
        change_rules(NOTHING, [])
    with pytest.raises(InvalidField, match="has an earlier change"):
        change_rules(NOTHING, [change(PII), removed("pii")])
    with pytest.raises(InvalidField, match="101 items"):
        change_rules(NOTHING, [change(PII)] * 101)
