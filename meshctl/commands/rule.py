"""`meshctl rule`: the ordered forwarding rules."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from mesh.rpc import admin, routing
from meshctl import wording
from meshctl.completions import cluster_names, rule_ids
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import as_dict, moment, print_json, print_table
from meshctl.session import Group, Session, pass_session

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group)
def rule() -> None:
    """Forwarding rules: list, add, set, move, remove. The first rule that matches decides."""


def _match_options(command: F) -> F:
    """--topic, --prefix, --regex, given to the command as `match` (None when none is there)."""

    @click.option("--topic", metavar="T", help="The topic of exactly this name.")
    @click.option("--prefix", metavar="P", help="Every topic whose name begins with this.")
    @click.option("--regex", metavar="R", help="Every topic whose whole name matches this RE2 expression.")
    @functools.wraps(command)
    def wrapped(*args: Any, topic: str | None, prefix: str | None, regex: str | None, **kwargs: Any) -> Any:
        if sum(each is not None for each in (topic, prefix, regex)) > 1:
            raise click.UsageError("--topic, --prefix and --regex exclude each other: a rule has one match")
        match: routing.RuleMatch | None = None
        if topic is not None:
            match = routing.RuleMatch(topic=topic)
        elif prefix is not None:
            match = routing.RuleMatch(topic_prefix=prefix)
        elif regex is not None:
            match = routing.RuleMatch(topic_regex=regex)
        return command(*args, match=match, **kwargs)

    return cast(F, wrapped)


def _place_options(command: F) -> F:
    """--first, --before, --last, given to the command as `place` (None when none is there)."""

    @click.option("--first", is_flag=True, help="Before all other rules.")
    @click.option("--before", metavar="RULE", shell_complete=rule_ids, help="Right before this rule.")
    @click.option("--last", is_flag=True, help="After all other rules; so it is when a new rule has no place.")
    @functools.wraps(command)
    def wrapped(*args: Any, first: bool, before: str | None, last: bool, **kwargs: Any) -> Any:
        if first + last + (before is not None) > 1:
            raise click.UsageError("--first, --before and --last exclude each other: a rule has one place")
        place: admin.RulePlace | None = None
        if first:
            place = admin.RulePlace(first=True)
        elif before is not None:
            place = admin.RulePlace(before=rule_name(before))
        elif last:
            place = admin.RulePlace(last=True)
        return command(*args, place=place, **kwargs)

    return cast(F, wrapped)


def change_options(command: F) -> F:
    """The options of every change of the rule set, given to the command as `options`."""

    @click.option("--reason", default="", help="Why, for the history.")
    @click.option("--dry-run", is_flag=True, help="Check only and say what would change.")
    @click.option(
        "--create-topics",
        is_flag=True,
        help="Create topics that move and are absent on their target; refused otherwise.",
    )
    @click.option(
        "--allow-shadowed", is_flag=True, help="Accept a rule that can never match because an earlier one covers it."
    )
    @click.option(
        "--allow-unreachable",
        is_flag=True,
        help="Go on although a cluster does not answer; the topics on it are not checked.",
    )
    @click.option(
        "--expected-revision",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Refuse when the rules changed since revision N.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        reason: str,
        dry_run: bool,
        create_topics: bool,
        allow_shadowed: bool,
        allow_unreachable: bool,
        expected_revision: int,
        **kwargs: Any,
    ) -> Any:
        options = admin.ChangeOptions(
            expected_revision=expected_revision, validate_only=dry_run, request_id=str(uuid.uuid4()), reason=reason,
            create_missing_topics=create_topics, allow_shadowed=allow_shadowed, allow_unreachable=allow_unreachable,
        )  # fmt: skip
        return command(*args, options=options, **kwargs)

    return cast(F, wrapped)


def rule_name(given: str) -> str:
    """The resource name of a rule given by id or by name."""
    return given if given.startswith("rules/") else f"rules/{given}"


def _named(session: Session, given: str | None, match: routing.RuleMatch | None) -> str:
    """The resource name of the rule that the operator means: by id, or by its match."""
    if (given is None) is (match is None):
        raise click.UsageError("say which rule: its id, or its match with --topic, --prefix or --regex; one of the two")
    if given is not None:
        return rule_name(given)
    assert match is not None  # the check above
    rules, _revision = session.connect().all_rules()
    for each in rules:
        if each.spec.match == match:
            return each.name
    raise MeshctlError(f"no rule has the match: {wording.match(match)}", ExitCode.NOT_FOUND, status="NOT_FOUND")


def _required(match: routing.RuleMatch | None) -> routing.RuleMatch:
    if match is None:
        raise click.UsageError("say which topics: --topic T, --prefix P or --regex R")
    return match


def _show(session: Session, answer: admin.RuleChangeResponse, options: admin.ChangeOptions) -> None:
    if session.as_json:
        print_json(answer)
        return
    for line in wording.change_lines(answer, dry_run=options.validate_only):
        click.echo(line)


@rule.command("list")
@pass_session
def list_rules(session: Session) -> None:
    """Show the rules in the order in which they are tried."""
    rules, revision = session.connect().all_rules()
    if session.as_json:
        print_json({"rules": [as_dict(each) for each in rules], "revision": str(revision)})
        return
    print_table(
        ("PLACE", "RULE", "MATCH", "CLUSTER", "REVISION", "BY", "SINCE"),
        (
            (
                each.place, wording.short(each.name), wording.match(each.spec.match), each.spec.target_cluster,
                each.revision, each.actor, moment(each.update_time),
            )
            for each in rules
        ),
        empty="There is no rule. Add one: meshctl rule add --prefix apples --to c1",
    )  # fmt: skip


@rule.command()
@_match_options
@click.option(
    "--to", "target", metavar="CLUSTER", required=True, shell_complete=cluster_names, help="Where these topics live."
)
@click.option("--id", "rule_id", default="", metavar="ID", help="Name of the rule; made from its match otherwise.")
@_place_options
@change_options
@pass_session
def add(
    session: Session,
    match: routing.RuleMatch | None,
    target: str,
    rule_id: str,
    place: admin.RulePlace | None,
    options: admin.ChangeOptions,
) -> None:
    """Add a rule; last unless a place is given."""
    request = admin.CreateRuleRequest(
        rule=routing.RuleSpec(rule_id=rule_id, match=_required(match), target_cluster=target),
        place=place,
        options=options,
    )
    connection = session.connect()
    _show(session, connection.call(connection.rules.CreateRule, request), options)


@rule.command("set")
@_match_options
@click.option(
    "--to",
    "target",
    metavar="CLUSTER",
    required=True,
    shell_complete=cluster_names,
    help="Where these topics live from now on.",
)
@_place_options
@change_options
@pass_session
def set_rule(
    session: Session,
    match: routing.RuleMatch | None,
    target: str,
    place: admin.RulePlace | None,
    options: admin.ChangeOptions,
) -> None:
    """Retarget the rule with exactly this match, or add it. A place counts only for a new rule."""
    request = admin.SetRuleRequest(match=_required(match), target_cluster=target, place=place, options=options)
    connection = session.connect()
    _show(session, connection.call(connection.rules.SetRule, request), options)


@rule.command()
@click.argument("given", metavar="[RULE]", required=False, shell_complete=rule_ids)
@_match_options
@_place_options
@change_options
@pass_session
def move(
    session: Session,
    given: str | None,
    match: routing.RuleMatch | None,
    place: admin.RulePlace | None,
    options: admin.ChangeOptions,
) -> None:
    """Move RULE (an id, or the rule with the given match) to another place in the order."""
    if place is None:
        raise click.UsageError("say where to: --first, --before RULE or --last")
    request = admin.MoveRuleRequest(name=_named(session, given, match), place=place, options=options)
    connection = session.connect()
    _show(session, connection.call(connection.rules.MoveRule, request), options)


@rule.command()
@click.argument("given", metavar="[RULE]", required=False, shell_complete=rule_ids)
@_match_options
@change_options
@pass_session
def remove(session: Session, given: str | None, match: routing.RuleMatch | None, options: admin.ChangeOptions) -> None:
    """Remove RULE (an id, or the rule with the given match)."""
    request = admin.RemoveRuleRequest(name=_named(session, given, match), options=options)
    connection = session.connect()
    _show(session, connection.call(connection.rules.RemoveRule, request), options)
