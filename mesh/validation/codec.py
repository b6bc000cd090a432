"""Rules and policies from the messages of validation.proto, and back."""

from __future__ import annotations

from typing import Final

from mesh.rpc import validation
from mesh.validation.policy import Policy
from mesh.validation.rule import Compression, Content, Key, Mode, Rule, ValueSchema

_MODES: Final = {
    validation.VALIDATION_MODE_ENFORCE: Mode.ENFORCE,
    validation.VALIDATION_MODE_OBSERVE: Mode.OBSERVE,
    validation.VALIDATION_MODE_MARK: Mode.MARK,
}
_MODE_NUMBERS: Final = {mode: number for number, mode in _MODES.items()}
_COMPRESSIONS: Final = {
    validation.COMPRESSION_TYPE_NONE: Compression.NONE,
    validation.COMPRESSION_TYPE_GZIP: Compression.GZIP,
    validation.COMPRESSION_TYPE_SNAPPY: Compression.SNAPPY,
    validation.COMPRESSION_TYPE_LZ4: Compression.LZ4,
    validation.COMPRESSION_TYPE_ZSTD: Compression.ZSTD,
}
_KEYS: Final = {
    validation.KEY_CONDITION_UNSPECIFIED: None,
    validation.KEY_CONDITION_REQUIRED: Key.REQUIRED,
    validation.KEY_CONDITION_FORBIDDEN: Key.FORBIDDEN,
}
_SCHEMAS: Final = {
    validation.SCHEMA_CONDITION_UNSPECIFIED: None,
    validation.SCHEMA_CONDITION_ANY: ValueSchema.ANY,
    validation.SCHEMA_CONDITION_SUBJECT: ValueSchema.SUBJECT,
}
_CONTENTS: Final = {
    "by_named_schema": Content.NAMED,
    "json_of_subject": Content.SUBJECT,
    "json_schema": Content.GIVEN,
}
"""By the names of the fields."""
_CONTENT_FIELDS: Final = {content: name for name, content in _CONTENTS.items()}
_SCHEMA_NUMBERS: Final = {schema: number for number, schema in _SCHEMAS.items()}
_KEY_NUMBERS: Final = {key: number for number, key in _KEYS.items()}
_COMPRESSION_NUMBERS: Final = {compression: number for number, compression in _COMPRESSIONS.items()}


class UnknownValidationError(ValueError):
    """A newer release of the mesh has set this rule. A table with such a rule is refused (`mesh.routing.codec`)."""


def is_known(message: validation.ValidationRule) -> bool:
    """Whether this release knows all numbers of the rule, and its kind of topics."""
    return (
        message.mode in _MODES
        and message.key in _KEYS
        and message.value_schema in _SCHEMAS
        and message.WhichOneof("topics") is not None
        and all(each in _COMPRESSIONS for each in message.compression_types)
    )


def rule_from_proto(message: validation.ValidationRule) -> Rule:
    """UnknownValidationError if a number is not known here."""
    if not is_known(message):
        raise UnknownValidationError(f"rule {message.rule_id!r} says something that this release does not know")
    is_prefix = message.WhichOneof("topics") == "topic_prefix"
    has_after = message.HasField("message_timestamp_after_max_ms")
    content = message.WhichOneof("value_content")
    return Rule(
        rule_id=message.rule_id,
        name=message.topic_prefix if is_prefix else message.topic,
        is_prefix=is_prefix,
        mode=_MODES[message.mode],
        compression_types=tuple(_COMPRESSIONS[each] for each in message.compression_types),
        max_message_bytes=message.max_message_bytes,
        acks_all=message.acks_all,
        enable_idempotence=message.enable_idempotence,
        message_timestamp_after_max_ms=message.message_timestamp_after_max_ms if has_after else None,
        key=_KEYS[message.key],
        tombstones_forbidden=message.tombstones_forbidden,
        required_headers=tuple(message.required_headers),
        max_record_bytes=message.max_record_bytes,
        value_schema=_SCHEMAS[message.value_schema],
        stores_unchecked=message.stores_unchecked,
        content=None if content is None else _CONTENTS[content],
        content_schema=message.json_of_subject or message.json_schema,
        dead_letter_topic=message.dead_letter_topic,
        message_format_v2=message.message_format_v2,
        key_by_named_schema=message.key_by_named_schema,
        new_name_regex=message.new_name_regex,
        principals=tuple(message.principals),
    )


def rule_to_proto(rule: Rule) -> validation.ValidationRule:
    message = validation.ValidationRule(
        rule_id=rule.rule_id,
        mode=_MODE_NUMBERS[rule.mode],
        compression_types=(_COMPRESSION_NUMBERS[each] for each in rule.compression_types),
        max_message_bytes=rule.max_message_bytes,
        acks_all=rule.acks_all,
        enable_idempotence=rule.enable_idempotence,
        message_timestamp_after_max_ms=rule.message_timestamp_after_max_ms,
        key=_KEY_NUMBERS[rule.key],
        tombstones_forbidden=rule.tombstones_forbidden,
        required_headers=rule.required_headers,
        max_record_bytes=rule.max_record_bytes,
        value_schema=_SCHEMA_NUMBERS[rule.value_schema],
        stores_unchecked=rule.stores_unchecked,
        dead_letter_topic=rule.dead_letter_topic,
        message_format_v2=rule.message_format_v2,
        key_by_named_schema=rule.key_by_named_schema,
        new_name_regex=rule.new_name_regex,
        principals=rule.principals,
    )
    setattr(message, "topic_prefix" if rule.is_prefix else "topic", rule.name)
    if rule.content is not None:
        setattr(message, _CONTENT_FIELDS[rule.content], rule.content is Content.NAMED or rule.content_schema)
    return message


def policy_from_proto(message: validation.ValidationPolicy | None) -> Policy:
    """As `rule_from_proto`, of all rules about records."""
    return _policy(message, about_records=True)


def new_topics_from_proto(message: validation.ValidationPolicy | None) -> Policy:
    """As `rule_from_proto`, of all rules about names of new topics."""
    return _policy(message, about_records=False)


def _policy(message: validation.ValidationPolicy | None, *, about_records: bool) -> Policy:
    if message is None:
        return Policy()
    rules = [rule_from_proto(each) for each in message.rules if bool(each.new_name_regex) != about_records]
    return Policy(rules, message.revision)
