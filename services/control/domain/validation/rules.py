"""Decisions about the validation of records: setting and removing rules.

The policy itself is in the routing table (`mesh.routing.listed_policy`), so gateways get it as they get rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mesh.routing.listed_policy import rule_key
from mesh.rpc import events, validation
from mesh.topics import is_topic_name
from mesh.validation.codec import UnknownValidationError, rule_from_proto, rule_to_proto
from mesh.validation.rule import Rule
from services.control.domain.errors import InvalidField, NotAllowed

VALIDATION: Final = "validation"
"""The stream of all decisions about validation."""
MOST_RULES: Final = 1_000
"""Each gateway holds all of them in memory, gets them with each table, and looks through all for each new topic."""
MOST_AT_ONCE: Final = 100
"""Changes of one call."""
RULE_ID: Final = re.compile(r"[a-z0-9-]{1,63}")
MOST_MS: Final = 2**53
"""The longest time in ms: each one up to it is exact as a number of JSON."""
MOST_HEADERS: Final = 16
LONGEST_HEADER: Final = 255


def change_rules(
    policy: validation.ValidationPolicy, wanted: Sequence[validation.ValidationRuleChange]
) -> events.ValidationRulesChanged | None:
    """The event that sets and removes rules; None if all of them are so already."""
    if not wanted:
        raise InvalidField("changes", "is empty: name one at least")
    if len(wanted) > MOST_AT_ONCE:
        raise InvalidField("changes", f"has {len(wanted)} items, and {MOST_AT_ONCE} are possible: make several calls")
    known = {rule_key(each): each for each in policy.rules}
    asked: dict[bytes, validation.ValidationRuleChange] = {}
    for index, each in enumerate(wanted):
        change = checked(each, f"changes[{index}]")
        if asked.setdefault(rule_key(change), change) is not change:
            raise InvalidField(f"changes[{index}].rule_id", f"{each.rule_id!r} has an earlier change: say it once")
    new = [each for key, each in asked.items() if known.get(key) != (each.rule if each.HasField("rule") else None)]
    kept = {key for key in known if key not in asked} | {key for key, each in asked.items() if each.HasField("rule")}
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
    if not RULE_ID.fullmatch(wanted.rule_id):
        raise InvalidField(f"{field}.rule_id", f"{wanted.rule_id[:63]!r} is no id: 1 to 63 characters of [a-z0-9-]")
    if not wanted.HasField("rule"):
        return validation.ValidationRuleChange(rule_id=wanted.rule_id)
    if wanted.rule.rule_id != wanted.rule_id:
        raise InvalidField(
            f"{field}.rule.rule_id", f"is {wanted.rule.rule_id!r}, and the change is of {wanted.rule_id!r}"
        )
    try:
        rule = rule_from_proto(wanted.rule)
    except UnknownValidationError:
        raise InvalidField(
            f"{field}.rule", "has no topic, no mode, or a compression type that is not known: say all of them"
        ) from None
    _check(rule, f"{field}.rule")
    return validation.ValidationRuleChange(rule_id=rule.rule_id, rule=rule_to_proto(rule))


def _check(rule: Rule, field: str) -> None:
    name = "topic_prefix" if rule.is_prefix else "topic"
    if not (rule.is_prefix and not rule.name) and not is_topic_name(rule.name):
        raise InvalidField(f"{field}.{name}", f"{rule.name[:249]!r} is no name of topics")
    if len(set(rule.compression_types)) < len(rule.compression_types):
        raise InvalidField(f"{field}.compression_types", "names one type twice")
    if rule.max_message_bytes < 0:
        raise InvalidField(f"{field}.max_message_bytes", f"is {rule.max_message_bytes}, and has to be above 0")
    after = rule.message_timestamp_after_max_ms
    if after is not None and not 0 <= after <= MOST_MS:
        raise InvalidField(f"{field}.message_timestamp_after_max_ms", f"is {after}, and has to be 0 to {MOST_MS}")
    if rule.max_record_bytes < 0:
        raise InvalidField(f"{field}.max_record_bytes", f"is {rule.max_record_bytes}, and has to be above 0")
    if rule.stores_unchecked and rule.value_schema is None:
        raise InvalidField(f"{field}.stores_unchecked", "is about value_schema, which the rule has not")
    _check_headers(rule.required_headers, f"{field}.required_headers")
    if not rule.conditions:
        raise InvalidField(field, "has no condition: name one at least")


def _check_headers(names: Sequence[str], field: str) -> None:
    if len(set(names)) < len(names):
        raise InvalidField(field, "names one header twice")
    if len(names) > MOST_HEADERS or not all(0 < len(name) <= LONGEST_HEADER for name in names):
        raise InvalidField(field, f"are at most {MOST_HEADERS} names of 1 to {LONGEST_HEADER} characters")
