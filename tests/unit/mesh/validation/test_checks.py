"""Which rules count for a topic, and which batches break them."""

from __future__ import annotations

import pytest

from mesh.rpc import validation
from mesh.validation import (
    Batch,
    Compression,
    Content,
    Fault,
    Key,
    Mode,
    Policy,
    Record,
    Rule,
    ValueSchema,
    breach,
    record_fault,
)
from mesh.validation.codec import new_topics_from_proto, policy_from_proto, rule_from_proto, rule_to_proto
from mesh.validation.new_topics import name_breach

NOW = 1_700_000_000_000
GOOD = Batch(Compression.ZSTD, 1000, NOW, is_idempotent=True, acks=-1)
STRICT = Rule(
    "strict",
    "orders",
    compression_types=(Compression.ZSTD, Compression.LZ4),
    max_message_bytes=1000,
    acks_all=True,
    enable_idempotence=True,
    message_timestamp_after_max_ms=0,
    message_format_v2=True,
)
NAMES = Rule("names", "", is_prefix=True, new_name_regex="pay[.][a-z]+", principals=("User:pay-*", "Group:pay"))


def test_a_batch_that_keeps_all_conditions_breaks_none() -> None:
    assert breach(STRICT, GOOD, NOW) is None


@pytest.mark.parametrize(
    ("batch", "fault", "text"),
    [
        (
            GOOD._replace(compression=Compression.NONE),
            Fault.RECORD,
            "compression.type is none, and has to be zstd or lz4",
        ),
        (GOOD._replace(compression=7), Fault.RECORD, r"compression.type is unknown \(7\)"),
        (GOOD._replace(size=1001), Fault.SIZE, "the batch has 1001 bytes, and max.message.bytes is 1000"),
        (GOOD._replace(acks=1), Fault.ACKS, "acks is 1, and has to be all"),
        (GOOD._replace(acks=0), Fault.ACKS, "acks is 0"),
        (GOOD._replace(is_idempotent=False), Fault.RECORD, "enable.idempotence is false"),
        (GOOD._replace(magic=1), Fault.FORMAT, "the message format is v1, and has to be v2"),
        (GOOD._replace(max_timestamp=NOW + 1), Fault.TIMESTAMP, "is 1 ms ahead"),
    ],
)
def test_each_condition_can_be_broken(batch: Batch, fault: Fault, text: str) -> None:
    found = breach(STRICT, batch, NOW)
    assert found is not None
    assert (found.rule, found.fault) == (STRICT, fault)
    with pytest.raises(ValueError, match=text):
        raise ValueError(found.reason)
    assert found.reason.endswith("(rule 'strict' of the mesh)")


def test_a_rule_without_a_condition_asks_for_nothing() -> None:
    anything = Batch(Compression.NONE, 1 << 30, NOW * 2, is_idempotent=False, acks=0)
    assert breach(Rule("none", "orders"), anything, NOW) is None


PLAIN = Record(has_key=True, has_value=True, header_names=frozenset({b"trace", b"more"}), size=100)
WHOLE = Rule("whole", "orders", tombstones_forbidden=True, required_headers=("trace",), max_record_bytes=100)


@pytest.mark.parametrize(
    ("rule", "record", "text"),
    [
        (WHOLE, PLAIN, None),
        (WHOLE, PLAIN._replace(has_value=False), "the record is a tombstone, and tombstones are forbidden"),
        (WHOLE, PLAIN._replace(header_names=frozenset({b"more"})), "the record lacks header 'trace'"),
        (WHOLE, PLAIN._replace(size=101), "the record has 101 bytes, and 100 are possible"),
        (Rule("k", "orders", key=Key.REQUIRED), PLAIN, None),
        (Rule("k", "orders", key=Key.REQUIRED), PLAIN._replace(has_key=False), "no key, and a key is required"),
        (Rule("k", "orders", key=Key.FORBIDDEN), PLAIN._replace(has_key=False), None),
        (Rule("k", "orders", key=Key.FORBIDDEN), PLAIN, "has a key, and keys are forbidden"),
    ],
)
def test_conditions_about_records(rule: Rule, record: Record, text: str | None) -> None:
    assert rule.opens_records
    found = record_fault(rule, record)
    assert found is None if text is None else found is not None and text in found


def test_all_rules_that_match_a_topic_count_in_the_order_of_their_ids() -> None:
    policy = Policy(
        [
            Rule("c", "orders"),
            Rule("b", "ord", is_prefix=True),
            Rule("a", "", is_prefix=True),
            Rule("d", "orders-2"),
        ]
    )
    assert [each.rule_id for each in policy.rules_for("orders")] == ["a", "b", "c"]
    assert [each.rule_id for each in policy.rules_for("other")] == ["a"]
    assert policy.rules_for("orders") is policy.rules_for("orders")
    assert Policy().rules_for("orders") == ()


@pytest.mark.parametrize(
    "rule",
    [
        STRICT,
        WHOLE,
        Rule("k", "orders", key=Key.FORBIDDEN),
        Rule("r", "", is_prefix=True, mode=Mode.OBSERVE, max_message_bytes=1),
        Rule("s", "orders", mode=Mode.MARK, value_schema=ValueSchema.SUBJECT, stores_unchecked=True),
        Rule("n", "orders", content=Content.NAMED, key_by_named_schema=True),
        NAMES,
        Rule("j", "orders", content=Content.SUBJECT, content_schema="orders-json"),
        Rule("g", "orders", content=Content.GIVEN, content_schema="{}", dead_letter_topic="dead"),
    ],
)
def test_a_rule_comes_back_from_its_message(rule: Rule) -> None:
    assert rule_from_proto(rule_to_proto(rule)) == rule
    assert policy_from_proto(None).rules == ()


@pytest.mark.parametrize(
    ("topic", "principals", "is_broken"),
    [
        ("pay.in", ("User:pay-1",), False),
        ("pay.in2", ("User:pay-1",), True),
        ("xpay.in", ("User:pay-1",), True),
        ("orders", ("User:shop",), False),
        ("orders", ("User:shop", "Group:pay"), True),
        ("orders", ("User:shop", "Group:payers"), False),
    ],
)
def test_a_policy_for_names_is_for_its_clients_and_the_whole_name(
    topic: str, principals: tuple[str, ...], is_broken: bool
) -> None:
    found = name_breach(NAMES, topic, principals)
    assert (found is not None) == is_broken
    if found is not None:
        reason = "the name of a new topic has to match the regular expression pay[.][a-z]+ (rule 'names' of the mesh)"
        assert (found.fault, found.reason) == (Fault.NAME, reason)


def test_rules_about_names_are_none_about_records() -> None:
    message = validation.ValidationPolicy(rules=[rule_to_proto(STRICT), rule_to_proto(NAMES)], revision=3)
    records, names = policy_from_proto(message), new_topics_from_proto(message)
    assert (records.rules, names.rules) == ((STRICT,), (NAMES,))
    assert records.revision == names.revision == 3
    assert name_breach(Rule("all", "", is_prefix=True, new_name_regex="a"), "b", ()) is not None


def test_a_rule_says_itself_in_words_of_kafka() -> None:
    assert str(NAMES) == (
        "names (enforce): for every topic the name of a topic that is created by User:pay-* or Group:pay matches "
        "pay[.][a-z]+"
    )
    assert str(STRICT) == (
        "strict (enforce): for topic 'orders' compression.type is zstd or lz4, max.message.bytes is 1000, acks is all, "
        "enable.idempotence is true, the message format is v2, message.timestamp.after.max.ms is 0"
    )
    assert str(Rule("r", "a.", is_prefix=True, acks_all=True)) == "r (enforce): for topics 'a.'* acks is all"
    assert str(Rule("r", "", is_prefix=True, acks_all=True)) == "r (enforce): for every topic acks is all"
