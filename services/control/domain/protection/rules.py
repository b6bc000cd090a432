"""Decisions about the protection of values: setting and removing rules.

The policy itself is in the routing table (`mesh.routing.listed_policy`), so gateways get it as they get rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mesh.protection.codec import UnknownProtectionError, rule_from_proto, rule_to_proto
from mesh.protection.keys import KEY_ID
from mesh.protection.rule import Others, Rule, What, overlap, within_another
from mesh.record_transforms import InvalidTransformError, json_path
from mesh.routing.listed_policy import RULE_SET, rule_key
from mesh.rpc import events, protection
from mesh.topics import is_topic_name
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.listed_changes import after, asked_once, check_id, check_topics

PROTECTION: Final = "protection"
"""The stream of all decisions about protection."""
MOST_RULES: Final = 1_000
"""Each gateway holds all of them in memory, gets them with each table, and looks through all for each new topic."""
MOST_FIELDS: Final = 32
MOST_READERS: Final = 100
MOST_ORIGINS: Final = 16
READER: Final = re.compile(r"(User|Group):.{1,255}")


def change_rules(
    policy: protection.ProtectionPolicy, wanted: Sequence[protection.ProtectionRuleChange]
) -> events.ProtectionRulesChanged | None:
    """The event that sets and removes rules; None if all of them are so already."""
    known = {rule_key(each): each for each in policy.rules}
    asked = dict(asked_once(wanted, checked, rule_key, "rule_id"))
    new, kept = after(known, asked, RULE_SET)
    if len(kept) > MOST_RULES:
        raise NotAllowed(
            "TOO_MANY_PROTECTION_RULES",
            PROTECTION,
            f"the mesh would have {len(kept)} rules of protection, and {MOST_RULES} are possible: remove others, or "
            "use prefixes",
        )
    _check_overlaps(kept, [rule_key(each) for each in new if each.HasField("rule")])
    return events.ProtectionRulesChanged(changes=new) if new else None


def _check_overlaps(kept: Mapping[bytes, protection.ProtectionRule], new: Sequence[bytes]) -> None:
    rules = {key: rule_from_proto(each) for key, each in kept.items()}
    for key in new:
        for other, theirs in rules.items():
            both = "" if other == key else overlap(rules[key], theirs)
            if both:
                raise NotAllowed(
                    "PROTECTED_TWICE",
                    PROTECTION,
                    f"rule {rules[key].rule_id!r} and rule {theirs.rule_id!r} would both protect {both} of one topic: "
                    "who reads it, and by which key, must be said once",
                )


def checked(wanted: protection.ProtectionRuleChange, field: str) -> protection.ProtectionRuleChange:
    """The change as it is compared. InvalidField if it says nothing that a gateway could follow."""
    check_id(wanted, "rule", "rule_id", field)
    if not wanted.HasField("rule"):
        return protection.ProtectionRuleChange(rule_id=wanted.rule_id)
    try:
        rule = rule_from_proto(wanted.rule)
    except UnknownProtectionError:
        raise InvalidField(
            f"{field}.rule", "has no topic, no part, or does not say what others get: say all of them"
        ) from None
    _check(rule, f"{field}.rule")
    return protection.ProtectionRuleChange(rule_id=rule.rule_id, rule=rule_to_proto(rule))


def _check(rule: Rule, field: str) -> None:
    check_topics(rule, field)
    if rule.key_id and not KEY_ID.fullmatch(rule.key_id):
        raise InvalidField(
            f"{field}.key_id", f"{rule.key_id[:63]!r} is no id of a key: 1 to 63 characters of [A-Za-z0-9._-]"
        )
    if rule.others is Others.CIPHERTEXT and not rule.key_id:
        raise InvalidField(f"{field}.others", "is ciphertext, and the rule encrypts nothing: name a key, or mask")
    _check_fields(rule, field)
    if len(rule.readers) > MOST_READERS or not all(READER.fullmatch(each) for each in rule.readers):
        raise InvalidField(f"{field}.readers", f"are at most {MOST_READERS} principals, User:NAME or Group:NAME")
    if len(rule.origin_topics) > MOST_ORIGINS or not all(map(is_topic_name, rule.origin_topics)):
        raise InvalidField(f"{field}.origin_topics", f"are at most {MOST_ORIGINS} names of topics")
    for what, names in (("readers", rule.readers), ("origin_topics", rule.origin_topics)):
        if len(set(names)) < len(names):
            raise InvalidField(f"{field}.{what}", "names one twice")


def _check_fields(rule: Rule, field: str) -> None:
    if rule.what is What.VALUE:
        if rule.fields or rule.requires_fields:
            raise InvalidField(f"{field}.fields", "are named, and the rule protects the whole value: name a format")
        return
    if not 0 < len(rule.fields) <= MOST_FIELDS:
        raise InvalidField(f"{field}.fields", f"are {len(rule.fields)} paths, and 1 to {MOST_FIELDS} are possible")
    for index, path in enumerate(rule.fields):
        try:
            json_path(path)
        except InvalidTransformError as error:
            raise InvalidField(f"{field}.fields[{index}]", error.reason) from None
    if within_another(rule.paths):
        raise InvalidField(f"{field}.fields", "has a path that is equal to another one, or leads through it")
