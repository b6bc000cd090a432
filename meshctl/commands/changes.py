"""A change of the rules, at once or scheduled, and the text of its outcome."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

import click

from mesh.rpc import admin
from mesh.wording import command_text, short
from meshctl import wording
from meshctl.commands.rule_options import AT
from meshctl.connection import Connection
from meshctl.output import moment, print_json, print_table
from meshctl.session import Session

Request = (
    admin.CreateRuleRequest
    | admin.UpdateRuleRequest
    | admin.SetRuleRequest
    | admin.ReorderRuleRequest
    | admin.RemoveRuleRequest
    | admin.ReplaceRulesRequest
    | admin.ChangeRulesRequest
    | admin.RevertRequest
)
"""A change of the rules as RuleService takes it."""


def carry_out(session: Session, request: Request) -> None:
    """Makes the call of this request now, or has control make it at the moment that `--at` gave; shows what came of
    it.
    """
    at: datetime | None = click.get_current_context().meta.get(AT)
    if at is not None:
        _schedule(session, request, at)
        return
    if request.options.validate_only and (edits := edits_of(request)):
        _dry_run(session, admin.DryRunRequest(edits=edits, options=request.options))
        return
    answer = ordered(session.connect(), request)
    if session.as_json:
        print_json(answer)
        return
    show_change(answer, dry_run=request.options.validate_only)


def ordered(connection: Connection, request: Request) -> admin.RuleChangeResponse:
    """The answer of control to the call of this request."""
    method = getattr(connection.rules, type(request).__name__.removesuffix("Request"))
    answer: admin.RuleChangeResponse = connection.call(method, request)
    return answer


def edits_of(request: Request) -> Sequence[admin.RuleEdit]:
    """The request as edits of the rule set; none for a revert, whose edits control alone knows."""
    match request:
        case admin.CreateRuleRequest():
            return [admin.RuleEdit(create=request)]
        case admin.UpdateRuleRequest():
            return [admin.RuleEdit(update=request)]
        case admin.SetRuleRequest():
            return [admin.RuleEdit(set=request)]
        case admin.ReorderRuleRequest():
            return [admin.RuleEdit(reorder=request)]
        case admin.RemoveRuleRequest():
            return [admin.RuleEdit(remove=request)]
        case admin.ReplaceRulesRequest():
            return [admin.RuleEdit(replace=request)]
        case admin.ChangeRulesRequest():
            return request.edits
        case _:
            return []


def _dry_run(session: Session, request: admin.DryRunRequest) -> None:
    connection = session.connect()
    answer = connection.call(connection.rules.DryRun, request)
    if session.as_json:
        print_json(answer)
        return
    show_change(answer.change, dry_run=True)
    if answer.findings:
        click.echo()
        print_table(
            ("", "ABOUT", "WHAT"),
            ((wording.severity(each.severity), each.subject, each.text) for each in answer.findings),
            empty="",
        )
    for each in answer.home_moves:
        who = f"group {each.group}" if each.group else f"transactional id {each.transactional_id}"
        click.echo(f"{who}: would be coordinated by {each.to_cluster}, not by {each.from_cluster}")
    if answer.clients:
        click.echo()
        print_table(
            ("CLIENT", "SOFTWARE", "FROM", "GATEWAY", "CONNECTIONS", "USES OF WHAT MOVES"),
            (
                (
                    each.client_id or "-", each.software or "-", each.host, each.gateway, each.connections,
                    ", ".join(each.topics),
                )
                for each in answer.clients
            ),
            empty="",
        )  # fmt: skip


def _schedule(session: Session, request: Request, at: datetime) -> None:
    wanted = admin.ScheduleChangeRequest(reason=request.options.reason, request_id=str(uuid.uuid4()))
    request.options.ClearField("request_id")
    wanted.command.Pack(request)
    wanted.time.FromDatetime(at)
    connection = session.connect()
    scheduled = connection.call(connection.changes.ScheduleChange, wanted)
    if session.as_json:
        print_json(scheduled)
        return
    identifier = short(scheduled.name)
    click.echo(f"{command_text(scheduled.command)}: scheduled for {moment(scheduled.time)}")
    click.echo(f"it is {identifier}; meshctl schedule cancel {identifier} takes it back")


def show_change(answer: admin.RuleChangeResponse, *, dry_run: bool) -> None:
    """Rules, moves, their effects on readers, and the outcome."""
    *lines, outcome = wording.change_lines(answer, dry_run=dry_run)
    for line in lines:
        click.echo(line)
    if answer.effects:
        print_table(
            ("TOPIC", "GROUP", "WHAT HAPPENS", "PARTITION", "POSITION", "NEW LOG"),
            (
                (each.topic, each.group, wording.effect(each), each.partition, each.position, wording.new_log(each))
                if each.group
                else (each.topic, "", wording.effect(each), "", "", "")
                for each in answer.effects
            ),
            empty="",
        )
    if dry_run and any(each.kind == admin.MOVE_EFFECT_KIND_SILENT_SKIP for each in answer.effects):
        click.echo("warning: groups would silently skip records; the change is refused without --accept-skip")
    for warning in answer.warnings:
        click.echo(f"warning: {warning}")
    click.echo(outcome)
