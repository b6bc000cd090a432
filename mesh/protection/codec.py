"""Rules and policies from the messages of protection.proto, and back."""

from __future__ import annotations

from typing import Final

from mesh.protection.policy import Policy
from mesh.protection.rule import Others, Rule, What
from mesh.rpc import protection

_PARTS: Final = {
    protection.PROTECTED_PART_VALUE: What.VALUE,
    protection.PROTECTED_PART_JSON: What.JSON,
    protection.PROTECTED_PART_AVRO: What.AVRO,
}
_PART_NUMBERS: Final = {what: number for number, what in _PARTS.items()}
_OTHERS: Final = {
    protection.OTHERS_GET_MASK: Others.MASK,
    protection.OTHERS_GET_CIPHERTEXT: Others.CIPHERTEXT,
    protection.OTHERS_GET_REFUSAL: Others.REFUSAL,
}
_OTHERS_NUMBERS: Final = {others: number for number, others in _OTHERS.items()}


class UnknownProtectionError(ValueError):
    """A newer release of the mesh has set this rule. A table with such a rule is refused (`mesh.routing.codec`)."""


def is_known(message: protection.ProtectionRule) -> bool:
    """Whether this release knows all numbers of the rule, and its kind of topics."""
    return message.part in _PARTS and message.others in _OTHERS and message.WhichOneof("topics") is not None


def rule_from_proto(message: protection.ProtectionRule) -> Rule:
    """UnknownProtectionError if a number is not known here."""
    if not is_known(message):
        raise UnknownProtectionError(f"rule {message.rule_id!r} says something that this release does not know")
    is_prefix = message.WhichOneof("topics") == "topic_prefix"
    return Rule(
        rule_id=message.rule_id,
        name=message.topic_prefix if is_prefix else message.topic,
        is_prefix=is_prefix,
        what=_PARTS[message.part],
        fields=tuple(message.fields),
        key_id=message.key_id,
        readers=tuple(message.readers),
        others=_OTHERS[message.others],
        requires_fields=message.requires_fields,
        origin_topics=tuple(message.origin_topics),
    )


def rule_to_proto(rule: Rule) -> protection.ProtectionRule:
    message = protection.ProtectionRule(
        rule_id=rule.rule_id,
        part=_PART_NUMBERS[rule.what],
        fields=rule.fields,
        key_id=rule.key_id,
        readers=rule.readers,
        others=_OTHERS_NUMBERS[rule.others],
        requires_fields=rule.requires_fields,
        origin_topics=rule.origin_topics,
    )
    setattr(message, "topic_prefix" if rule.is_prefix else "topic", rule.name)
    return message


def policy_from_proto(message: protection.ProtectionPolicy | None) -> Policy:
    """As `rule_from_proto`, of all rules."""
    return Policy() if message is None else Policy(map(rule_from_proto, message.rules), message.revision)
