"""`meshctl rule`: the ordered forwarding rules."""

from __future__ import annotations

from typing import Any

import click

from mesh.rpc import admin, routing
from mesh.wording import how_text, match_text, short
from meshctl.commands.changes import carry_out
from meshctl.commands.rule_options import (
    ALL_MATCHES,
    change_options,
    field_options,
    match_options,
    place_options,
    rule_name,
)
from meshctl.completions import cluster_names, rule_ids
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import as_dict, moment, print_json, print_table
from meshctl.session import Group, Session, pass_session


@click.group(cls=Group)
def rule() -> None:
    """Forwarding rules: list, add, set, default, move, remove. The first rule that matches decides."""


def _named(session: Session, given: str | None, match: routing.RuleMatch | None) -> str:
    """The resource name of the rule that the operator means: by id, or by its match."""
    if (given is None) is (match is None):
        raise click.UsageError(f"say which rule: its id, or its match with {ALL_MATCHES}; one of the two")
    if given is not None:
        return rule_name(given)
    assert match is not None  # the check above
    rules, _revision = session.connect().all_rules()
    for each in rules:
        if each.spec.match == match:
            return each.name
    raise MeshctlError(f"no rule has the match: {match_text(match)}", ExitCode.NOT_FOUND, status="NOT_FOUND")


def _required(match: routing.RuleMatch | None) -> routing.RuleMatch:
    if match is None:
        raise click.UsageError(f"say what the rule is about: {ALL_MATCHES}")
    return match


def _is_about_clients(match: routing.RuleMatch) -> bool:
    return (match.WhichOneof("kind") or "").startswith("client_software")


@rule.command("list")
@pass_session
def list_rules(session: Session) -> None:
    """Show the rules in the order in which they are tried."""
    rules, revision = session.connect().all_rules()
    if session.as_json:
        print_json({"rules": [as_dict(each) for each in rules], "revision": str(revision)})
        return
    print_table(
        ("PLACE", "RULE", "MATCH", "CLUSTER", "HOW", "REVISION", "BY", "SINCE"),
        (
            (
                each.place, short(each.name), match_text(each.spec.match), each.spec.target_cluster or "-",
                how_text(each.spec), each.revision, each.actor, moment(each.update_time),
            )
            for each in rules
        ),
        empty="There is no rule. Add one: meshctl rule add --prefix apples --to c1",
    )  # fmt: skip


@rule.command()
@match_options
@field_options
@click.option("--id", "rule_id", default="", metavar="ID", help="Name of the rule; made from its match otherwise.")
@place_options
@change_options
@pass_session
def add(
    session: Session,
    match: routing.RuleMatch | None,
    fields: dict[str, Any],
    rule_id: str,
    place: admin.RulePlace | None,
    options: admin.ChangeOptions,
) -> None:
    """Add a rule; last unless a place is given."""
    match = _required(match)
    if "target_cluster" not in fields and not _is_about_clients(match):
        raise click.UsageError("say where: --to CLUSTER")
    request = admin.CreateRuleRequest(
        rule=routing.RuleSpec(rule_id=rule_id, match=match, **fields), place=place, options=options
    )
    carry_out(session, request)


@rule.command("set")
@match_options
@field_options
@place_options
@change_options
@pass_session
def set_rule(
    session: Session,
    match: routing.RuleMatch | None,
    fields: dict[str, Any],
    place: admin.RulePlace | None,
    options: admin.ChangeOptions,
) -> None:
    """Change the rule with exactly this match, or add it. Options left out keep their values; a place is for new rules.

    \b
    Examples:
      meshctl rule set --prefix apples --to c2 --dry-run        what would move, and what readers will see
      meshctl rule set --prefix apples --to c2 --wait           returns when every gateway runs it
      meshctl rule set --prefix apples --to c2 --without gw-3   although gw-3 does not answer
      meshctl rule set --prefix apples --to c2 --at "02:00 UTC" at night; see meshctl schedule list
      meshctl rule set --prefix apples --for-client-id-prefix shop- --from-network 10.1.0.0/16 --to c2 --first
                                                                only for the clients of whom both is true
    """
    match = _required(match)
    if not fields:
        raise click.UsageError(
            "say what it is from now on: --to, --upstream-topic, --shadow-topics, --span-clusters or --nodes"
        )
    request = admin.SetRuleRequest(match=match, place=place, options=options, **fields)
    carry_out(session, request)


@rule.command()
@click.argument("cluster", shell_complete=cluster_names)
@change_options
@pass_session
def default(session: Session, cluster: str, options: admin.ChangeOptions) -> None:
    """Route topics that no other rule matches to CLUSTER. Without this rule, clients get UNKNOWN_TOPIC_OR_PARTITION.

    \b
    Examples:
      meshctl rule default c1                       the default cluster of all clients
      meshctl rule remove --unmatched-topics        none any more
      meshctl rule set --unmatched-topics --for-client-id-prefix acme- --to c2 --upstream-topic 'acme.{topic}'
                                                    for some clients, who have topics of their own
    """
    match = routing.RuleMatch(unmatched_topics=True)
    carry_out(session, admin.SetRuleRequest(match=match, target_cluster=cluster, options=options))


@rule.command()
@click.argument("given", metavar="[RULE]", required=False, shell_complete=rule_ids)
@match_options
@place_options
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
    request = admin.ReorderRuleRequest(name=_named(session, given, match), place=place, options=options)
    carry_out(session, request)


@rule.command()
@click.argument("given", metavar="[RULE]", required=False, shell_complete=rule_ids)
@match_options
@change_options
@pass_session
def remove(session: Session, given: str | None, match: routing.RuleMatch | None, options: admin.ChangeOptions) -> None:
    """Remove RULE (an id, or the rule with the given match)."""
    request = admin.RemoveRuleRequest(name=_named(session, given, match), options=options)
    carry_out(session, request)
