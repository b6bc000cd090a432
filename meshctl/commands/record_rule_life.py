"""The commands that mirrors and content rules have in common: list, show, pause, resume, rewind, remove."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import click

from mesh.rpc import record_rules
from mesh.wording import short
from meshctl.commands.record_rule_options import START, change_options, rule_argument
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.looking import Looking, look_options, show_looks
from meshctl.output import age, as_dict, moment, print_json, print_table, table
from meshctl.record_rules import STARTS, Rates, details, kind, sentence, state
from meshctl.session import Command, Session, pass_session

SINGULAR = {"mirror": "mirror", "content": "content rule"}
COLUMNS = ("RULE", "RECORDS", "STATE", "ROUTER", "LAG", "RECORDS/S", "WRITTEN", "DEAD", "PROBLEM")
NOBODY_YET = "no router has spoken of it yet"
INTERVAL_SECONDS = 1.0  # routers say how far they are once a second


def name_of(given: str) -> str:
    """The resource name of a rule given by id or by name."""
    return given if given.startswith("recordrules/") else f"recordrules/{given}"


def rule_of(connection: Connection, rule_id: str, of_kind: str) -> record_rules.RecordRule:
    """The rule. A rule of the other kind is an error, and the message names the right command."""
    request = record_rules.GetRecordRuleRequest(name=name_of(rule_id))
    found = connection.call(connection.record_rules.GetRecordRule, request)
    if kind(found) != of_kind:
        other = SINGULAR[kind(found)]
        raise MeshctlError(f"{rule_id!r} is a {other}: see `meshctl {kind(found)} --help`", ExitCode.NOT_FOUND)
    return found


def print_rule(session: Session, rule: record_rules.RecordRule, options: record_rules.RecordRuleOptions) -> None:
    """Prints the result of a change."""
    if session.as_json:
        print_json(rule)
        return
    click.echo(f"{short(rule.name)}: {sentence(rule.spec)} ({state(rule)})")
    click.echo("checked only, nothing was changed" if options.validate_only else f"at revision {rule.revision}")
    for warning in rule.warnings:
        click.echo(f"warning: {warning}", err=True)


def add_common(group: click.Group, of_kind: str) -> None:
    """Gives the group of one kind the commands that both have."""
    for made in (_list(of_kind), _show(of_kind), *map(_switch(of_kind), ("pause", "resume")), _rewind(), _remove()):
        group.add_command(made)


def _list(of_kind: str) -> click.Command:
    @click.command("list", cls=Command)
    @look_options(INTERVAL_SECONDS)
    @pass_session
    def list_rules(session: Session, looking: Looking) -> None:
        connection = session.connect()
        rates = Rates(time.monotonic)
        show_looks(
            session,
            looking,
            look=lambda: _found(connection, of_kind),
            print_one=lambda found: _print(session, found, rates, of_kind, one_line=looking.again),
            as_table=lambda found: table(COLUMNS, _rows(found, rates)),
        )

    list_rules.help = f"""Show all {SINGULAR[of_kind]}s and how far they are.

    \b
    Examples:
      meshctl {of_kind} list
      meshctl {of_kind} list -w              lag and records a second, refreshed
      meshctl {of_kind} list -w -o json      one JSON document a second
    """
    return list_rules


def _found(connection: Connection, of_kind: str) -> list[record_rules.RecordRule]:
    return [each for each in connection.all_record_rules() if kind(each) == of_kind]


def _print(
    session: Session, found: list[record_rules.RecordRule], rates: Rates, of_kind: str, *, one_line: bool
) -> None:
    if session.as_json:
        print_json({"record_rules": [as_dict(each) for each in found]}, one_line=one_line)
        return
    example = "--from c1 --to c2 --topic orders" if of_kind == "mirror" else "--help"
    empty = f"There is no {SINGULAR[of_kind]}. Make one: meshctl {of_kind} create ID {example}"
    print_table(COLUMNS, _rows(found, rates), empty=empty)


def print_record_rules(found: Iterable[record_rules.RecordRule]) -> None:
    """The table of `meshctl status`: mirrors and content rules."""
    print_table(COLUMNS, (_row(each, None) for each in found), empty="")


def _rows(found: list[record_rules.RecordRule], rates: Rates) -> list[Sequence[object]]:
    return [_row(each, rates.of(each)) for each in found]


def _row(rule: record_rules.RecordRule, rate: float | None) -> Sequence[object]:
    progress = rule.progress
    known = rule.HasField("progress")
    lag = progress.lag if progress.partition_count else "-"  # nothing was read yet
    return (
        short(rule.name), sentence(rule.spec), state(rule),
        short(progress.router) or "-", lag, "-" if rate is None else f"{rate:.0f}",
        progress.records_written, progress.records_dead, progress.problem if known else NOBODY_YET,
    )  # fmt: skip


def _show(of_kind: str) -> click.Command:
    @click.command("show", cls=Command)
    @rule_argument
    @pass_session
    def show(session: Session, rule_id: str) -> None:
        rule = rule_of(session.connect(), rule_id, of_kind)
        if session.as_json:
            print_json(rule)
            return
        click.echo(f"{short(rule.name)}: {sentence(rule.spec)}")
        for label, text in _facts(rule):
            click.echo(f"  {label + ':':<14}{text}")
        if rule.progress.partitions:
            print_table(
                ("TOPIC", "PARTITION", "POSITION", "END", "LAG"),
                (
                    (each.topic, each.partition, each.position, each.end, max(0, each.end - each.position))
                    for each in rule.progress.partitions
                ),
                empty="",
            )

    show.help = f"""Show one {SINGULAR[of_kind]}: what it says, who runs it, and where each partition is.

    \b
    Example:
      meshctl {of_kind} show eu-orders
    """
    return show


def _facts(rule: record_rules.RecordRule) -> list[tuple[str, str]]:
    progress = rule.progress
    said = [("state", f"{state(rule)}, revision {rule.revision}, by {rule.actor} at {moment(rule.update_time)}")]
    said += details(rule.spec)
    if not rule.HasField("progress"):
        return [*said, ("router", NOBODY_YET)]
    carried_out = "" if progress.revision >= rule.revision else f", which carries out revision {progress.revision}"
    counts = f"{progress.records_written} written, {progress.records_filtered} left out, {progress.records_dead} dead"
    said += [
        ("router", f"{short(progress.router)}{carried_out}, {age(progress.report_time)}"),
        ("records", f"{counts}; {progress.lag} to go in {progress.partition_count} partitions"),
    ]
    if progress.HasField("groups_synced_time"):
        said.append(("groups", f"translated {age(progress.groups_synced_time)}"))
    return [*said, ("problem", progress.problem)] if progress.problem else said


def _switch(of_kind: str) -> Callable[[str], click.Command]:
    def made(verb: str) -> click.Command:
        @click.command(verb, cls=Command)
        @rule_argument
        @change_options
        @pass_session
        def switch(session: Session, rule_id: str, options: record_rules.RecordRuleOptions) -> None:
            connection = session.connect()
            if verb == "pause":
                pause = record_rules.PauseRecordRuleRequest(name=name_of(rule_id), options=options)
                rule = connection.call(connection.record_rules.PauseRecordRule, pause)
            else:
                resume = record_rules.ResumeRecordRuleRequest(name=name_of(rule_id), options=options)
                rule = connection.call(connection.record_rules.ResumeRecordRule, resume)
            print_rule(session, rule, options)

        what = "Stop ID where it is." if verb == "pause" else "Let ID go on where it was."
        switch.help = f"""{what}

        \b
        Example:
          meshctl {of_kind} {verb} eu-orders --reason 'c2 is being upgraded'
        """
        return switch

    return made


def _rewind() -> click.Command:
    @click.command(cls=Command)
    @rule_argument
    @click.option("--to", "start", type=START, required=True, help=f"The new beginning: {STARTS}.")
    @change_options
    @pass_session
    def rewind(
        session: Session, rule_id: str, start: record_rules.StartAt, options: record_rules.RecordRuleOptions
    ) -> None:
        """Let ID begin again at another position. Records that it has written stay, so targets may hold records twice.

        \b
        Examples:
          meshctl mirror rewind eu-orders --to earliest
          meshctl mirror rewind eu-orders --to 2026-11-21T20:00:00Z
          meshctl mirror rewind eu-orders --to orders:0=500,1=480
        """
        connection = session.connect()
        request = record_rules.RewindRecordRuleRequest(name=name_of(rule_id), start=start, options=options)
        print_rule(session, connection.call(connection.record_rules.RewindRecordRule, request), options)

    return rewind


def _remove() -> click.Command:
    @click.command(cls=Command)
    @rule_argument
    @change_options
    @pass_session
    def remove(session: Session, rule_id: str, options: record_rules.RecordRuleOptions) -> None:
        """Remove ID. Records that it has written stay; a later rule of the same id begins without a position.

        \b
        Example:
          meshctl mirror remove eu-orders --reason 'nobody reads it any more'
        """
        connection = session.connect()
        request = record_rules.RemoveRecordRuleRequest(name=name_of(rule_id), options=options)
        answer = connection.call(connection.record_rules.RemoveRecordRule, request)
        if session.as_json:
            print_json(answer)
            return
        gone = (
            "can be removed; nothing was changed" if options.validate_only else f"removed at revision {answer.revision}"
        )
        click.echo(f"{rule_id} {gone}")

    return remove
