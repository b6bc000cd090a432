"""The rules of validation that control takes, and those that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.rpc import events, validation
from mesh.validation import Compression, Content, Mode, Rule
from mesh.validation.codec import rule_to_proto
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.validation.rules import LONGEST_SCHEMA, MOST_RULES, change_rules
from services.control.presentation.validation import changed

SMALL = Rule("small", "orders", max_message_bytes=1000)
NOTHING = validation.ValidationPolicy()


def change(rule: Rule) -> validation.ValidationRuleChange:
    return validation.ValidationRuleChange(rule_id=rule.rule_id, rule=rule_to_proto(rule))


def given(schema: str) -> validation.ValidationRuleChange:
    return change(Rule("r", "orders", content=Content.GIVEN, content_schema=schema))


def letters(topic: str, mode: Mode = Mode.ENFORCE) -> validation.ValidationRuleChange:
    return change(Rule("r", "orders", mode=mode, acks_all=True, dead_letter_topic=topic))


def names(regex: str, **more: Any) -> validation.ValidationRuleChange:
    return change(Rule("r", "", is_prefix=True, new_name_regex=regex, **more))


def removed(rule_id: str) -> validation.ValidationRuleChange:
    return validation.ValidationRuleChange(rule_id=rule_id)


def policy(*rules: Rule) -> validation.ValidationPolicy:
    return validation.ValidationPolicy(rules=map(rule_to_proto, rules))


def test_changes_that_are_so_already_make_no_event() -> None:
    assert change_rules(policy(SMALL), [change(SMALL), removed("other")]) is None
    event = change_rules(policy(SMALL), [change(SMALL), change(Rule("safe", "", is_prefix=True, acks_all=True))])
    assert event is not None
    assert list(changed(events.Event(validation_rules_changed=event))) == [
        "validation: rule safe (enforce): for every topic acks is all"
    ]
    event = change_rules(policy(SMALL), [removed("small")])
    assert event is not None
    assert list(changed(events.Event(validation_rules_changed=event))) == ["validation: rule small is removed"]


@pytest.mark.parametrize(
    ("wanted", "field", "text"),
    [
        (change(Rule("Small", "orders", acks_all=True)), "changes[0].rule_id", "is no id"),
        (change(Rule("r", "no topic", acks_all=True)), "changes[0].rule.topic", "no name of topics"),
        (change(Rule("r", "", acks_all=True)), "changes[0].rule.topic", "no name of topics"),
        (change(Rule("r", "a b", is_prefix=True, acks_all=True)), "changes[0].rule.topic_prefix", "no name of topics"),
        (change(Rule("r", "orders")), "changes[0].rule", "has no condition"),
        (change(Rule("r", "orders", max_message_bytes=-1)), "changes[0].rule.max_message_bytes", "above 0"),
        (
            change(Rule("r", "orders", message_timestamp_after_max_ms=-1)),
            "changes[0].rule.message_timestamp_after_max_ms",
            "has to be 0 to",
        ),
        (change(Rule("r", "orders", max_record_bytes=-1)), "changes[0].rule.max_record_bytes", "above 0"),
        (change(Rule("r", "orders", required_headers=("a", "a"))), "changes[0].rule.required_headers", "twice"),
        (change(Rule("r", "orders", required_headers=("",))), "changes[0].rule.required_headers", "at most 16"),
        (
            change(Rule("r", "orders", compression_types=(Compression.LZ4, Compression.LZ4))),
            "changes[0].rule.compression_types",
            "one type twice",
        ),
        (change(Rule("r", "orders", acks_all=True, stores_unchecked=True)), "changes[0].rule.stores_unchecked", "none"),
        (change(Rule("r", "orders", content=Content.SUBJECT)), "changes[0].rule.json_of_subject", "1 to 255"),
        (letters("a b"), "changes[0].rule.dead_letter_topic", "no name of topics"),
        (letters("orders"), "changes[0].rule.dead_letter_topic", "of the rule itself"),
        (letters("dead", mode=Mode.MARK), "changes[0].rule.dead_letter_topic", "mode mark stores them"),
        (given(""), "changes[0].rule.json_schema", "can't be used"),
        (names("["), "changes[0].rule.new_name_regex", "is not an RE2 expression: missing ]"),
        (names("a" * 1001), "changes[0].rule.new_name_regex", "1000 are possible"),
        (names("a", acks_all=True), "changes[0].rule.new_name_regex", "make two rules"),
        (names("a", mode=Mode.MARK), "changes[0].rule.mode", "enforce or observe"),
        (names("a", dead_letter_topic="dead"), "changes[0].rule.dead_letter_topic", "is about none"),
        (names("a", principals=("alice",)), "changes[0].rule.principals[0]", "is not User:NAME or Group:NAME"),
        (names("a", principals=("User:a*b",)), "changes[0].rule.principals[0]", "a last *"),
        (names("a", principals=("User:a", "User:a")), "changes[0].rule.principals", "each once"),
        (names("", acks_all=True, principals=("User:a",)), "changes[0].rule.principals", "the rule has none"),
        (given('{"type": "nonsense"}'), "changes[0].rule.json_schema", "#/type"),
        (given('{"$ref": "http://127.0.0.1:9/x"}'), "changes[0].rule.json_schema", "Retrieval is disabled"),
        (given('{"pattern": "(?=a)"}'), "changes[0].rule.json_schema", "#/pattern"),
        (given('{"title": "' + "x" * LONGEST_SCHEMA + '"}'), "changes[0].rule.json_schema", "register it"),
        (
            validation.ValidationRuleChange(rule_id="r", rule=validation.ValidationRule(rule_id="r", acks_all=True)),
            "changes[0].rule",
            "has no topic",
        ),
        (
            validation.ValidationRuleChange(rule_id="r", rule=rule_to_proto(SMALL)),
            "changes[0].rule.rule_id",
            "the change is of 'r'",
        ),
    ],
)
def test_a_rule_that_no_gateway_could_check_is_refused(
    wanted: validation.ValidationRuleChange, field: str, text: str
) -> None:
    with pytest.raises(InvalidField, match=text) as refusal:
        change_rules(NOTHING, [wanted])
    assert refusal.value.field == field


def test_rules_about_content_are_taken_and_said_in_words() -> None:
    rules = [
        Rule("a", "orders", content=Content.NAMED, stores_unchecked=True),
        Rule("b", "orders", mode=Mode.MARK, content=Content.SUBJECT, content_schema="orders-json"),
        Rule("c", "orders", content=Content.GIVEN, content_schema='{"type": "object"}', dead_letter_topic="dead"),
    ]
    event = change_rules(NOTHING, [change(rule) for rule in rules])
    assert event is not None
    assert [text.partition("'orders' ")[2] for text in changed(events.Event(validation_rules_changed=event))] == [
        "a value is valid by the schema that it names (stored while the registry is away)",
        "a value is JSON by the latest schema of subject 'orders-json'",
        'a value is JSON by the schema {"type": "object"}; dead letters in topic \'dead\'',
    ]


def test_two_changes_of_one_rule_in_a_call_are_refused() -> None:
    with pytest.raises(InvalidField, match="say it once"):
        change_rules(NOTHING, [change(SMALL), removed("small")])


def test_the_policy_is_bounded() -> None:
    full = policy(*(Rule(f"r{number}", "orders", acks_all=True) for number in range(MOST_RULES)))
    with pytest.raises(NotAllowed, match="use prefixes"):
        change_rules(full, [change(SMALL)])
    assert change_rules(full, [change(SMALL), removed("r1")]) is not None


def test_a_policy_for_names_is_taken() -> None:
    wanted = names("pay[.].+", principals=("User:*", "User:pay-*", "Group:pay"), mode=Mode.OBSERVE)
    assert change_rules(NOTHING, [wanted]) is not None
