"""`meshctl mirror`: topics that are copied from one cluster to another."""

from __future__ import annotations

from typing import Any

import click

from mesh import durations
from mesh.rpc import record_rules
from meshctl.commands.record_rule_life import add_common, name_of, print_rule, rule_of
from meshctl.commands.record_rule_options import (
    change_options,
    file_option,
    rule_argument,
    spec_from,
    start_option,
    transform_option,
)
from meshctl.completions import cluster_names
from meshctl.output import print_json
from meshctl.session import Group, Session, pass_session


@click.group(cls=Group)
def mirror() -> None:
    """Mirrors: topics that are copied to another cluster, record by record, exactly once.

    \b
    Examples:
      meshctl mirror create eu-orders --from c1 --to c2 --topic orders
      meshctl mirror create all --from c1 --to c2 --prefix '' --target-topic '{source_cluster}.{topic}'
      meshctl mirror list -w
      meshctl mirror pause eu-orders
      meshctl mirror rewind eu-orders --to 2026-11-21T20:00:00Z
      meshctl mirror sync-groups eu-orders --group billing
      meshctl mirror remove eu-orders
    """


add_common(mirror, "mirror")


def _what_options(command: Any) -> Any:
    """The options of a mirror, without its clusters and topics."""
    for option in (
        transform_option,
        start_option,
        click.option("--group-regex", metavar="R", help="Only groups whose whole id matches this RE2 expression."),
        click.option("--sync-interval", type=click.IntRange(min=1), metavar="MS", help="Between two translations."),
        click.option(
            "--sync-groups/--no-sync-groups",
            default=None,
            help="Committed offsets of consumer groups follow the records, exactly translated, continuously.",
        ),
        click.option("--keep-topics-in-step/--no-keep-topics-in-step", default=None, help="Default: kept."),
        click.option("--filter", "filter_", metavar="EXPR", help="Only records for which this CEL expression is true."),
        click.option(
            "--target-topic",
            metavar="TEMPLATE",
            help="Name on the target, with {topic}, {suffix} (behind the prefix), {source_cluster}; default: the same.",
        ),
    ):
        command = option(command)
    return command


@mirror.command()
@rule_argument
@click.option("--from", "source", metavar="CLUSTER", shell_complete=cluster_names, help="The cluster to read from.")
@click.option("--to", "target", metavar="CLUSTER", shell_complete=cluster_names, help="The cluster to write to.")
@click.option("--topic", help="The topic of exactly this name.")
@click.option("--prefix", help="Every topic whose name begins with this; '' for all.")
@_what_options
@file_option
@change_options
@pass_session
def create(
    session: Session,
    /,
    rule_id: str,
    source: str | None,
    target: str | None,
    topic: str | None,
    prefix: str | None,
    stream: Any,
    options: record_rules.RecordRuleOptions,
    **said: Any,
) -> None:
    """Copy topics of a cluster to another one, from now on. Topics that are absent there are created.

    \b
    Examples:
      meshctl mirror create eu-orders --from c1 --to c2 --topic orders --start earliest
      meshctl mirror create eu --from c1 --to c2 --prefix eu. --target-topic 'copy.{topic}' --sync-groups
      meshctl mirror create paid --from c1 --to c2 --topic orders --filter "value.state == 'paid'"
      meshctl mirror create masked --from c1 --to c2 --topic orders --transform redact:customer.card
      meshctl mirror create eu-orders -f mirror.yaml
    """
    if stream is not None:
        spec = spec_from(stream, rule_id, "mirror")
    else:
        if source is None or target is None or (topic is None) is (prefix is None):
            raise click.UsageError("say --from CLUSTER, --to CLUSTER, and --topic T or --prefix P; or give -f FILE")
        spec = record_rules.RecordRuleSpec(record_rule_id=rule_id)
        spec.mirror.source_cluster, spec.mirror.target_cluster = source, target
        _set_topics(spec.mirror, topic, prefix)
    _set(spec, **said)
    connection = session.connect()
    request = record_rules.CreateRecordRuleRequest(record_rule=spec, options=options)
    print_rule(session, connection.call(connection.record_rules.CreateRecordRule, request), options)


@mirror.command()
@rule_argument
@click.option("--topic", help="The topic of exactly this name.")
@click.option("--prefix", help="Every topic whose name begins with this; '' for all.")
@_what_options
@file_option
@change_options
@pass_session
def update(
    session: Session,
    /,
    rule_id: str,
    topic: str | None,
    prefix: str | None,
    stream: Any,
    options: record_rules.RecordRuleOptions,
    **said: Any,
) -> None:
    """Change a mirror. Options left out keep their values; the mirror keeps its position and its clusters.

    \b
    Examples:
      meshctl mirror update eu-orders --filter "headers.region == 'eu'"
      meshctl mirror update eu-orders --filter ''
      meshctl mirror update eu-orders --sync-groups --sync-interval 5000
    """
    connection = session.connect()
    if topic is not None and prefix is not None:
        raise click.UsageError("--topic and --prefix exclude each other")
    known = rule_of(connection, rule_id, "mirror")
    spec = known.spec if stream is None else spec_from(stream, rule_id, "mirror")
    _set_topics(spec.mirror, topic, prefix)
    _set(spec, **said)
    options.expected_revision = options.expected_revision or known.revision
    request = record_rules.UpdateRecordRuleRequest(name=name_of(rule_id), record_rule=spec, options=options)
    print_rule(session, connection.call(connection.record_rules.UpdateRecordRule, request), options)


@mirror.command("sync-groups")
@rule_argument
@click.option("--group", "groups", metavar="G", multiple=True, help="Only this group; repeatable. Default: all.")
@change_options
@pass_session
def sync_groups(
    session: Session, rule_id: str, groups: tuple[str, ...], options: record_rules.RecordRuleOptions
) -> None:
    """Give consumer groups of the source their offsets on the target, once, exactly translated.

    \b
    Examples:
      meshctl mirror sync-groups eu-orders
      meshctl mirror sync-groups eu-orders --group billing --group shipping
    """
    connection = session.connect()
    request = record_rules.SyncGroupOffsetsRequest(name=name_of(rule_id), groups=groups, options=options)
    answer = connection.call(connection.record_rules.SyncGroupOffsets, request)
    if session.as_json:
        print_json(answer)
        return
    named = ", ".join(groups) or "all groups"
    click.echo(
        f"offsets of {named} can be translated; nothing was changed"
        if options.validate_only
        else f"offsets of {named} are to be translated (revision {answer.revision}); `meshctl mirror show` tells when"
    )


def _set_topics(spec: record_rules.MirrorSpec, topic: str | None, prefix: str | None) -> None:
    if topic is not None:
        spec.topic = topic
    if prefix is not None:
        spec.topic_prefix = prefix


def _set(
    spec: record_rules.RecordRuleSpec,
    *,
    target_topic: str | None,
    filter_: str | None,
    transforms: tuple[record_rules.Transform, ...],
    start: record_rules.StartAt | None,
    sync_groups: bool | None,
    sync_interval: int | None,
    group_regex: str | None,
    keep_topics_in_step: bool | None,
) -> None:
    """Sets the fields whose options were given; None and empty options change nothing."""
    mirror = spec.mirror
    if target_topic is not None:
        mirror.target_topic = target_topic
    if filter_ is not None:
        mirror.filter = filter_
    if transforms:
        del mirror.transforms[:]
        mirror.transforms.extend(transforms)
    if start is not None:
        spec.start.CopyFrom(start)
    if sync_groups is not None:
        mirror.group_offsets.continuous = sync_groups
    if sync_interval is not None:
        mirror.group_offsets.sync_interval.CopyFrom(durations.of_ms(sync_interval))
    if group_regex is not None:
        mirror.group_offsets.group_regex = group_regex
    if keep_topics_in_step is not None:
        mirror.keep_topics_in_step = keep_topics_in_step
