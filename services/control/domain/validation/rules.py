"""Decisions about the validation of records: setting and removing rules.

The policy itself is in the routing table (`mesh.routing.listed_policy`), so gateways get it as they get rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mesh.re2_expressions import InvalidRe2Error, compiled
from mesh.routing.listed_policy import RULE_SET, rule_key
from mesh.rpc import events, validation
from mesh.schemas.json_schema import JsonSchema
from mesh.schemas.schema import RegisteredSchema, SchemaError, SchemaKind
from mesh.topics import is_topic_name
from mesh.validation.codec import UnknownValidationError, rule_from_proto, rule_to_proto
from mesh.validation.rule import Content, Mode, Rule
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.listed_changes import after, asked_once, check_id, check_topics

VALIDATION: Final = "validation"
"""The stream of all decisions about validation."""
MOST_RULES: Final = 1_000
"""Each gateway holds all of them in memory, gets them with each table, and looks through all for each new topic."""
MOST_MS: Final = 2**53
"""The longest time in ms: each one up to it is exact as a number of JSON."""
MOST_HEADERS: Final = 16
LONGEST_HEADER: Final = 255
LONGEST_SUBJECT: Final = 255
LONGEST_REGEX: Final = 1000
MOST_PRINCIPALS: Final = 100
PRINCIPAL: Final = re.compile(r"(User|Group):[^*]{0,254}[^*\s]\*?|(User|Group):\*")
LONGEST_SCHEMA: Final = 8192
"""Bytes of a rule's own schema: each gateway gets it with the table."""


def change_rules(
    policy: validation.ValidationPolicy, wanted: Sequence[validation.ValidationRuleChange]
) -> events.ValidationRulesChanged | None:
    """The event that sets and removes rules; None if all of them are so already."""
    known = {rule_key(each): each for each in policy.rules}
    asked = dict(asked_once(wanted, checked, rule_key, "rule_id"))
    new, kept = after(known, asked, RULE_SET)
    if len(kept) > MOST_RULES:
        raise NotAllowed(
            "TOO_MANY_VALIDATION_RULES",
            VALIDATION,
            f"the mesh would have {len(kept)} rules of validation, and {MOST_RULES} are possible: remove others, or "
            "use prefixes",
        )
    return events.ValidationRulesChanged(changes=new) if new else None


def checked(wanted: validation.ValidationRuleChange, field: str) -> validation.ValidationRuleChange:
    """The change as it is compared. InvalidField if it says nothing that a gateway could check."""
    check_id(wanted, "rule", "rule_id", field)
    if not wanted.HasField("rule"):
        return validation.ValidationRuleChange(rule_id=wanted.rule_id)
    try:
        rule = rule_from_proto(wanted.rule)
    except UnknownValidationError:
        raise InvalidField(
            f"{field}.rule", "has no topic, no mode, or a compression type that is not known: say all of them"
        ) from None
    _check(rule, f"{field}.rule")
    return validation.ValidationRuleChange(rule_id=rule.rule_id, rule=rule_to_proto(rule))


def _check(rule: Rule, field: str) -> None:
    check_topics(rule, field)
    if len(set(rule.compression_types)) < len(rule.compression_types):
        raise InvalidField(f"{field}.compression_types", "names one type twice")
    if rule.max_message_bytes < 0:
        raise InvalidField(f"{field}.max_message_bytes", f"is {rule.max_message_bytes}, and has to be above 0")
    after = rule.message_timestamp_after_max_ms
    if after is not None and not 0 <= after <= MOST_MS:
        raise InvalidField(f"{field}.message_timestamp_after_max_ms", f"is {after}, and has to be 0 to {MOST_MS}")
    if rule.max_record_bytes < 0:
        raise InvalidField(f"{field}.max_record_bytes", f"is {rule.max_record_bytes}, and has to be above 0")
    if rule.stores_unchecked and not rule.asks_registry:
        raise InvalidField(f"{field}.stores_unchecked", "is about schemas of the registry, and the rule asks for none")
    _check_content(rule, field)
    _check_new_topics(rule, field)
    _check_dead_letters(rule, f"{field}.dead_letter_topic")
    _check_headers(rule.required_headers, f"{field}.required_headers")
    if not rule.conditions:
        raise InvalidField(field, "has no condition: name one at least")


def _check_content(rule: Rule, field: str) -> None:
    match rule.content:
        case Content.SUBJECT:
            if not 0 < len(rule.content_schema) <= LONGEST_SUBJECT:
                raise InvalidField(f"{field}.json_of_subject", f"has to have 1 to {LONGEST_SUBJECT} characters")
        case Content.GIVEN:
            size = len(rule.content_schema.encode())
            if size > LONGEST_SCHEMA:
                reason = f"has {size} bytes, and {LONGEST_SCHEMA} are possible: register it, and name its subject"
                raise InvalidField(f"{field}.json_schema", reason)
            try:
                JsonSchema(RegisteredSchema(0, SchemaKind.JSON, rule.content_schema))
            except SchemaError as error:
                raise InvalidField(f"{field}.json_schema", f"can't be used: {error}") from None


def _check_dead_letters(rule: Rule, field: str) -> None:
    topic = rule.dead_letter_topic
    if not topic:
        return
    if not is_topic_name(topic):
        raise InvalidField(field, f"{topic[:249]!r} is no name of topics")
    if rule.mode is not Mode.ENFORCE:
        raise InvalidField(field, f"is for records that are refused, and mode {rule.mode.value} stores them")
    if rule.matches(topic):
        raise InvalidField(field, f"{topic!r} is a topic of the rule itself: name another one")


def _check_new_topics(rule: Rule, field: str) -> None:
    if not rule.new_name_regex:
        if rule.principals:
            raise InvalidField(f"{field}.principals", "are about new_name_regex, and the rule has none")
        return
    if len(rule.new_name_regex) > LONGEST_REGEX:
        reason = f"has {len(rule.new_name_regex)} characters, and {LONGEST_REGEX} are possible"
        raise InvalidField(f"{field}.new_name_regex", reason)
    try:
        compiled(rule.new_name_regex)
    except InvalidRe2Error as error:
        raise InvalidField(f"{field}.new_name_regex", str(error)) from None
    if len(rule.conditions) > 1:
        reason = "is about names of topics, and the rule has conditions about records: make two rules"
        raise InvalidField(f"{field}.new_name_regex", reason)
    if rule.mode is Mode.MARK:
        raise InvalidField(f"{field}.mode", "marks records, and new_name_regex is about none: enforce or observe")
    if rule.dead_letter_topic:
        raise InvalidField(f"{field}.dead_letter_topic", "is for records, and new_name_regex is about none")
    if len(set(rule.principals)) < len(rule.principals) or len(rule.principals) > MOST_PRINCIPALS:
        raise InvalidField(f"{field}.principals", f"are at most {MOST_PRINCIPALS}, each once")
    for index, each in enumerate(rule.principals):
        if not PRINCIPAL.fullmatch(each):
            reason = f"{each[:255]!r} is not User:NAME or Group:NAME, with or without a last *"
            raise InvalidField(f"{field}.principals[{index}]", reason)


def _check_headers(names: Sequence[str], field: str) -> None:
    if len(set(names)) < len(names):
        raise InvalidField(field, "names one header twice")
    if len(names) > MOST_HEADERS or not all(0 < len(name) <= LONGEST_HEADER for name in names):
        raise InvalidField(field, f"are at most {MOST_HEADERS} names of 1 to {LONGEST_HEADER} characters")
