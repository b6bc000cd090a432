"""Changes of rules in words."""

from __future__ import annotations

from mesh.protection.codec import UnknownProtectionError, rule_from_proto
from mesh.rpc import protection


def rule_text(of: protection.ProtectionRule) -> str:
    """ "pii: for topic 'orders' email of json is encrypted by key 'pii', User:crm read it, others get a mask"."""
    try:
        return str(rule_from_proto(of))
    except UnknownProtectionError as error:
        return str(error)


def change_text(of: protection.ProtectionRuleChange) -> str:
    """The sentence of a change."""
    return rule_text(of.rule) if of.HasField("rule") else f"{of.rule_id} is removed"
