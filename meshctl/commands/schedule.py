"""`meshctl schedule`: changes that wait for their time. They are made by commands about rules with `--at`."""

from __future__ import annotations

import uuid

import click

from mesh.rpc import admin
from mesh.wording import command_text, short
from meshctl.completions import schedule_ids
from meshctl.output import as_dict, moment, print_json, print_table
from meshctl.session import Group, Session, pass_session


@click.group(cls=Group)
def schedule() -> None:
    """Changes that wait for their time: list them, cancel one.

    \b
    Examples:
      meshctl rule set --prefix apples --to c2 --at "02:00 UTC"
      meshctl schedule list
      meshctl schedule cancel 3f9a1c02
      meshctl history                         what became of those whose time has come
    """


@schedule.command("list")
@pass_session
def list_scheduled(session: Session) -> None:
    """Show what is still to come, soonest first.

    \b
    Examples:
      meshctl schedule list
      meshctl schedule list -o json
    """
    found = session.connect().all_scheduled_changes()
    if session.as_json:
        print_json({"scheduled_changes": [as_dict(each) for each in found]})
        return
    print_table(
        ("ID", "WHEN", "WHAT", "BY", "REASON"),
        ((short(each.name), moment(each.time), command_text(each.command), each.actor, each.reason) for each in found),
        empty='Nothing is scheduled. Commands about rules take --at: meshctl rule set ... --at "02:00 UTC"',
    )


@schedule.command()
@click.argument("schedule_id", metavar="ID", shell_complete=schedule_ids)
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def cancel(session: Session, schedule_id: str, reason: str) -> None:
    """Cancel the scheduled change ID; possible while the mesh is frozen, too.

    \b
    Examples:
      meshctl schedule cancel 3f9a1c02 --reason "moved by hand"
    """
    name = schedule_id if schedule_id.startswith("schedules/") else f"schedules/{schedule_id}"
    request = admin.CancelScheduledChangeRequest(name=name, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.changes.CancelScheduledChange, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"{short(name)} is cancelled (revision {answer.revision})")
