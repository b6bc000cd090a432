"""`meshctl validation`: the records that gateways refuse, by topic."""

from __future__ import annotations

from typing import Final, TextIO

import click

from mesh.rpc import validation as pb
from mesh.validation.codec import rule_to_proto
from mesh.validation.rule import Compression, Content, Key, Mode, Rule, ValueSchema
from mesh.validation.words import change_text, rule_text
from meshctl.policy_calls import at_option, make_changes, reason_option, show_list, topics_of
from meshctl.session import Command, Group, Session, pass_session

LONGEST_FILE: Final = 100_000
"""Characters of a JSON Schema that are read; control takes fewer, and says so."""


@click.group(cls=Group)
def validation() -> None:
    """Rules about the records of topics: set, remove, list, explain.

    All rules that match a topic count. A gateway refuses a batch that breaks a rule, and stores none of its records.
    """


@validation.command(name="set", cls=Command)
@click.argument("rule_id", metavar="RULE")
@click.option("--topic", metavar="TOPIC", help="For this topic.")
@click.option("--topic-prefix", metavar="PREFIX", help="For all topics that begin so; '' stands for every topic.")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.ENFORCE.value,
    show_default=True,
    help="Refuse batches, or only count and write them down.",
)
@click.option(
    "--compression-type",
    "compression_types",
    multiple=True,
    type=click.Choice([each.word for each in Compression]),
    help="Batches are compressed like this; several times for a choice.",
)
@click.option("--max-message-bytes", type=click.IntRange(min=1), help="The largest batch, compressed.")
@click.option("--acks-all", is_flag=True, help="Producers wait for all replicas in sync.")
@click.option("--enable-idempotence", is_flag=True, help="Producers are idempotent.")
@click.option(
    "--message-timestamp-after-max-ms",
    type=click.IntRange(min=0),
    help="How far the time of a record may be ahead of the gateway's.",
)
@click.option("--key", type=click.Choice([key.value for key in Key]), help="Records have a key, or have none.")
@click.option("--tombstones-forbidden", is_flag=True, help="Each record has a value.")
@click.option(
    "--required-header", "required_headers", multiple=True, metavar="NAME", help="Each record has this header."
)
@click.option(
    "--value-schema",
    type=click.Choice([each.value for each in ValueSchema]),
    help="Values name a schema of the registry by its id: any, or one of the subject TOPIC-value.",
)
@click.option(
    "--store-unchecked", is_flag=True, help="Store batches whose schemas the registry can't tell now; else refuse them."
)
@click.option(
    "--by-named-schema",
    is_flag=True,
    help="Values are valid by the schema that they name: Avro, JSON Schema, Protobuf.",
)
@click.option(
    "--json-of-subject", metavar="SUBJECT", help="Values are JSON, valid by the subject's latest JSON Schema."
)
@click.option(
    "--json-schema",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Values are JSON, valid by this JSON Schema.",
)
@click.option(
    "--key-by-named-schema",
    is_flag=True,
    help="Keys are valid by the schema that they name: Avro, JSON Schema, Protobuf.",
)
@click.option("--message-format-v2", is_flag=True, help="No batches of clients older than Kafka 0.11.")
@click.option(
    "--new-name-regex",
    metavar="RE2",
    help="Clients create only topics whose whole name matches; for a rule of its own.",
)
@click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="PRINCIPAL",
    help="With --new-name-regex: only for this User:NAME or Group:NAME; a last * stands for any end.",
)
@click.option("--dead-letter-topic", metavar="TOPIC", help="Refused records are written to this topic first.")
@click.option("--max-record-bytes", type=click.IntRange(min=1), help="The largest record, not compressed.")
@reason_option
@pass_session
def set_(
    session: Session,
    rule_id: str,
    topic: str | None,
    topic_prefix: str | None,
    mode: str,
    compression_types: tuple[str, ...],
    max_message_bytes: int | None,
    acks_all: bool,
    enable_idempotence: bool,
    message_timestamp_after_max_ms: int | None,
    key: str | None,
    tombstones_forbidden: bool,
    required_headers: tuple[str, ...],
    max_record_bytes: int | None,
    value_schema: str | None,
    store_unchecked: bool,
    by_named_schema: bool,
    json_of_subject: str | None,
    json_schema: TextIO | None,
    key_by_named_schema: bool,
    message_format_v2: bool,
    new_name_regex: str | None,
    principals: tuple[str, ...],
    dead_letter_topic: str | None,
    reason: str,
) -> None:
    """Set RULE: its topics and all its conditions. A rule that is there is replaced.

    \b
    Examples:
      meshctl validation set small --topic orders --compression-type zstd --max-message-bytes 262144
      meshctl validation set safe --topic-prefix payments. --acks-all --enable-idempotence --mode observe
      meshctl validation set whole --topic orders --by-named-schema
      meshctl validation set names --topic-prefix '' --new-name-regex 'pay[.][a-z-]+' --principal 'User:pay-*'
    """
    name, is_prefix = topics_of(topic, topic_prefix)
    content, content_schema = _content(by_named_schema, json_of_subject, json_schema)
    rule = Rule(
        rule_id=rule_id,
        name=name,
        is_prefix=is_prefix,
        mode=Mode(mode),
        compression_types=tuple(Compression[each.upper()] for each in dict.fromkeys(compression_types)),
        max_message_bytes=max_message_bytes or 0,
        acks_all=acks_all,
        enable_idempotence=enable_idempotence,
        message_timestamp_after_max_ms=message_timestamp_after_max_ms,
        key=None if key is None else Key(key),
        tombstones_forbidden=tombstones_forbidden,
        required_headers=tuple(dict.fromkeys(required_headers)),
        max_record_bytes=max_record_bytes or 0,
        value_schema=None if value_schema is None else ValueSchema(value_schema),
        stores_unchecked=store_unchecked,
        content=content,
        content_schema=content_schema,
        dead_letter_topic=dead_letter_topic or "",
        message_format_v2=message_format_v2,
        key_by_named_schema=key_by_named_schema,
        new_name_regex=new_name_regex or "",
        principals=tuple(dict.fromkeys(principals)),
    )
    if not rule.conditions:
        raise click.UsageError("name a condition, --compression-type for example")
    _change(session, pb.ValidationRuleChange(rule_id=rule_id, rule=rule_to_proto(rule)), reason)


@validation.command(cls=Command)
@click.argument("rule_id", metavar="RULE")
@reason_option
@pass_session
def remove(session: Session, rule_id: str, reason: str) -> None:
    """Remove RULE.

    \b
    Examples:
      meshctl validation remove small --reason "producers of the old shop are back"
    """
    _change(session, pb.ValidationRuleChange(rule_id=rule_id), reason)


@validation.command(name="list", cls=Command)
@at_option
@pass_session
def list_(session: Session, at_revision: int | None) -> None:
    """List all rules.

    \b
    Examples:
      meshctl validation list
      meshctl validation list --at 120
    """
    _show(
        session, pb.ListValidationRulesRequest(at_revision=at_revision or 0), "There is no rule: meshctl validation set"
    )


@validation.command(cls=Command)
@click.argument("topic")
@at_option
@pass_session
def explain(session: Session, topic: str, at_revision: int | None) -> None:
    """Say which rules count for TOPIC.

    \b
    Examples:
      meshctl validation explain orders
    """
    request = pb.ListValidationRulesRequest(topic=topic, at_revision=at_revision or 0)
    _show(session, request, f"No rule counts for topic {topic!r}: its records are not validated")


def _content(by_named_schema: bool, subject: str | None, file: TextIO | None) -> tuple[Content | None, str]:
    if by_named_schema + (subject is not None) + (file is not None) > 1:
        raise click.UsageError("name one of --by-named-schema, --json-of-subject and --json-schema")
    if subject is not None:
        return Content.SUBJECT, subject
    if file is not None:
        return Content.GIVEN, file.read(LONGEST_FILE)
    return (Content.NAMED if by_named_schema else None), ""


def _show(session: Session, request: pb.ListValidationRulesRequest, empty: str) -> None:
    show_list(session, session.connect().validation.ListValidationRules, request, "rules", rule_text, empty)


def _change(session: Session, change: pb.ValidationRuleChange, reason: str) -> None:
    request = pb.ChangeValidationRulesRequest(changes=[change])
    make_changes(session, session.connect().validation.ChangeValidationRules, request, change_text, "rule", reason)
