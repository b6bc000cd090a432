"""Changes of rules in words."""

from __future__ import annotations

from mesh.rpc import validation
from mesh.validation.codec import UnknownValidationError, rule_from_proto


def rule_text(of: validation.ValidationRule) -> str:
    """ "small (enforce): for topic 'orders' compression.type is zstd"."""
    try:
        return str(rule_from_proto(of))
    except UnknownValidationError as error:
        return str(error)


def change_text(of: validation.ValidationRuleChange) -> str:
    """The sentence of a change."""
    return rule_text(of.rule) if of.HasField("rule") else f"{of.rule_id} is removed"
