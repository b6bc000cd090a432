"""`meshctl protection`: the fields and values that gateways encrypt and mask, by topic."""

from __future__ import annotations

import click

from mesh.protection.codec import rule_to_proto
from mesh.protection.rule import Others, Rule, What
from mesh.protection.words import change_text, rule_text
from mesh.rpc import protection as pb
from meshctl.policy_calls import at_option, make_changes, reason_option, show_list, topics_of
from meshctl.session import Command, Group, Session, pass_session


@click.group(cls=Group)
def protection() -> None:
    """Rules about values that not everyone may read: set, remove, list, explain.

    Gateways encrypt values as they are written, and decrypt or mask them as they are read. All rules that match a topic
    count.
    """


@protection.command(name="set", cls=Command)
@click.argument("rule_id", metavar="RULE")
@click.option("--topic", metavar="TOPIC", help="For this topic.")
@click.option("--topic-prefix", metavar="PREFIX", help="For all topics that begin so; '' stands for every topic.")
@click.option(
    "--json-field", "json_fields", multiple=True, metavar="PATH", help="A field of JSON: customer.card.number."
)
@click.option("--avro-field", "avro_fields", multiple=True, metavar="PATH", help="A field of Avro, likewise.")
@click.option("--value", "whole", is_flag=True, help="The whole value, whatever it is.")
@click.option(
    "--key-id", default="", metavar="KEY", help="Encrypt new values by this key; without it they are only masked."
)
@click.option(
    "--reader", "readers", multiple=True, metavar="PRINCIPAL", help="User:NAME or Group:NAME, who gets the clear value."
)
@click.option(
    "--others",
    type=click.Choice([each.value for each in Others]),
    default=Others.MASK.value,
    show_default=True,
    help="The answer to all others.",
)
@click.option("--requires-fields", is_flag=True, help="Refuse records that lack one of the fields.")
@click.option(
    "--origin-topic", "origins", multiple=True, metavar="TOPIC", help="The topics hold copies of this one, by mirrors."
)
@reason_option
@pass_session
def set_(
    session: Session,
    rule_id: str,
    topic: str | None,
    topic_prefix: str | None,
    json_fields: tuple[str, ...],
    avro_fields: tuple[str, ...],
    whole: bool,
    key_id: str,
    readers: tuple[str, ...],
    others: str,
    requires_fields: bool,
    origins: tuple[str, ...],
    reason: str,
) -> None:
    """Set RULE: its topics, what it protects, and for whom. A rule that is there is replaced.

    \b
    Examples:
      meshctl protection set pii --topic orders --json-field customer.email --key-id pii --reader User:crm
      meshctl protection set cards --topic-prefix payments. --value --key-id cards --reader Group:fin --others refusal
    """
    name, is_prefix = topics_of(topic, topic_prefix)
    if bool(json_fields) + bool(avro_fields) + whole != 1:
        raise click.UsageError("say what is protected: --json-field, --avro-field or --value, one of the three")
    rule = Rule(
        rule_id=rule_id,
        name=name,
        is_prefix=is_prefix,
        what=What.VALUE if whole else What.JSON if json_fields else What.AVRO,
        fields=tuple(dict.fromkeys(json_fields or avro_fields)),
        key_id=key_id,
        readers=tuple(dict.fromkeys(readers)),
        others=Others(others),
        requires_fields=requires_fields,
        origin_topics=tuple(dict.fromkeys(origins)),
    )
    _change(session, pb.ProtectionRuleChange(rule_id=rule_id, rule=rule_to_proto(rule)), reason)


@protection.command(cls=Command)
@click.argument("rule_id", metavar="RULE")
@reason_option
@pass_session
def remove(session: Session, rule_id: str, reason: str) -> None:
    """Remove RULE.

    \b
    Examples:
      meshctl protection remove pii --reason "the topic has no personal data any more"
    """
    _change(session, pb.ProtectionRuleChange(rule_id=rule_id), reason)


@protection.command(name="list", cls=Command)
@at_option
@pass_session
def list_(session: Session, at_revision: int | None) -> None:
    """List all rules.

    \b
    Examples:
      meshctl protection list
      meshctl protection list --at 120
    """
    _show(
        session, pb.ListProtectionRulesRequest(at_revision=at_revision or 0), "There is no rule: meshctl protection set"
    )


@protection.command(cls=Command)
@click.argument("topic")
@at_option
@pass_session
def explain(session: Session, topic: str, at_revision: int | None) -> None:
    """Say which rules count for TOPIC: what is protected, by which key, and who reads it.

    \b
    Examples:
      meshctl protection explain orders
    """
    request = pb.ListProtectionRulesRequest(topic=topic, at_revision=at_revision or 0)
    _show(session, request, f"No rule counts for topic {topic!r}: its values are as they are stored")


def _show(session: Session, request: pb.ListProtectionRulesRequest, empty: str) -> None:
    show_list(session, session.connect().protection.ListProtectionRules, request, "rules", rule_text, empty)


def _change(session: Session, change: pb.ProtectionRuleChange, reason: str) -> None:
    request = pb.ChangeProtectionRulesRequest(changes=[change])
    make_changes(session, session.connect().protection.ChangeProtectionRules, request, change_text, "rule", reason)
