"""`meshctl content`: records of a topic that go to one of several topics by what is in them."""

from __future__ import annotations

from typing import Any

import click

from mesh.rpc import record_rules
from meshctl.commands.record_rule_life import add_common, name_of, print_rule, rule_of
from meshctl.commands.record_rule_options import (
    TARGET,
    change_options,
    file_option,
    rule_argument,
    spec_from,
    start_option,
    transform_option,
)
from meshctl.completions import cluster_names
from meshctl.record_rules import VALUE_FORMATS
from meshctl.session import Group, Session, pass_session


@click.group(cls=Group)
def content() -> None:
    """Content rules: each record of a topic goes to one of several topics, by header, key or field.

    \b
    Examples:
      meshctl content create by-country --from c1 --topic orders \\
          --when "value.country == 'DE'" --to orders-de \\
          --when "value.country == 'FR'" --to c2/orders-fr --otherwise orders-rest
      meshctl content list -w
      meshctl content pause by-country
      meshctl content remove by-country
    """


add_common(content, "content")


def _what_options(command: Any) -> Any:
    """The options of a content rule, without its source."""
    for option in (
        transform_option,
        start_option,
        click.option(
            "--value-format", type=click.Choice(list(VALUE_FORMATS)), help="How values are read; default: json."
        ),
        click.option(
            "--dead-letters",
            type=TARGET,
            help="The topic for records that cannot be judged; default: TOPIC.dlq on the source.",
        ),
        click.option(
            "--otherwise", type=TARGET, help="The topic for records that no branch takes; default: dead letters."
        ),
        click.option(
            "--to", "targets", type=TARGET, multiple=True, help="The topic for records of the --when before it."
        ),
        click.option(
            "--when", "expressions", metavar="EXPR", multiple=True, help="A CEL expression; tried in this order."
        ),
    ):
        command = option(command)
    return command


@content.command()
@rule_argument
@click.option("--from", "source", metavar="CLUSTER", shell_complete=cluster_names, help="The cluster to read from.")
@click.option("--topic", help="The topic to read.")
@_what_options
@file_option
@change_options
@pass_session
def create(
    session: Session,
    /,
    rule_id: str,
    source: str | None,
    topic: str | None,
    stream: Any,
    options: record_rules.RecordRuleOptions,
    **said: Any,
) -> None:
    """Distribute the records of a topic, from now on. Each --when has its --to: [CLUSTER/]TOPIC, which must exist.

    \b
    Expressions are CEL over key, headers, value, topic, partition, timestamp:
      value.amount > 1000 && headers.region == 'eu'
      value.items.exists(item, item.kind == 'book')
    \b
    Examples:
      meshctl content create large --from c1 --topic orders \\
          --when 'value.amount > 1000' --to orders-large --otherwise orders-small
      meshctl content create large -f rule.yaml
    """
    if stream is not None:
        spec = spec_from(stream, rule_id, "content")
    else:
        if source is None or topic is None or not said["expressions"]:
            raise click.UsageError("say --from CLUSTER, --topic T, and at least one --when EXPR --to TOPIC; or -f FILE")
        spec = record_rules.RecordRuleSpec(record_rule_id=rule_id)
        spec.content.source_cluster, spec.content.topic = source, topic
    _set(spec, **said)
    connection = session.connect()
    request = record_rules.CreateRecordRuleRequest(record_rule=spec, options=options)
    print_rule(session, connection.call(connection.record_rules.CreateRecordRule, request), options)


@content.command()
@rule_argument
@_what_options
@file_option
@change_options
@pass_session
def update(
    session: Session, /, rule_id: str, stream: Any, options: record_rules.RecordRuleOptions, **said: Any
) -> None:
    """Change a content rule. Options left out keep their values, and the rule keeps its position.

    New branches replace all former branches.

    \b
    Example:
      meshctl content update large --when 'value.amount > 5000' --to orders-large
    """
    connection = session.connect()
    known = rule_of(connection, rule_id, "content")
    spec = known.spec if stream is None else spec_from(stream, rule_id, "content")
    _set(spec, **said)
    options.expected_revision = options.expected_revision or known.revision
    request = record_rules.UpdateRecordRuleRequest(name=name_of(rule_id), record_rule=spec, options=options)
    print_rule(session, connection.call(connection.record_rules.UpdateRecordRule, request), options)


def _set(
    spec: record_rules.RecordRuleSpec,
    *,
    expressions: tuple[str, ...],
    targets: tuple[record_rules.RecordTarget, ...],
    otherwise: record_rules.RecordTarget | None,
    dead_letters: record_rules.RecordTarget | None,
    value_format: str | None,
    transforms: tuple[record_rules.Transform, ...],
    start: record_rules.StartAt | None,
) -> None:
    """Sets the fields whose options were given; None and empty options change nothing."""
    if len(expressions) != len(targets):
        raise click.UsageError(f"each --when has one --to: there are {len(expressions)} and {len(targets)}")
    content = spec.content
    if expressions:
        del content.branches[:]
        for expression, target in zip(expressions, targets, strict=True):
            content.branches.add(when=expression, target=target)
    if otherwise is not None:
        content.otherwise.CopyFrom(otherwise)
    if dead_letters is not None:
        content.dead_letters.CopyFrom(dead_letters)
    if value_format is not None:
        content.value_format = VALUE_FORMATS[value_format]
    if transforms:
        del content.transforms[:]
        content.transforms.extend(transforms)
    if start is not None:
        spec.start.CopyFrom(start)
