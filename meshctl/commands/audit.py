"""`meshctl audit`: who called what, refused calls included; `audit tail` and `audit trail`: what becomes of records."""

from __future__ import annotations

from itertools import islice

import click

from mesh.rpc import admin
from mesh.wording import actor_text
from meshctl.commands.audit_export import export
from meshctl.commands.audit_tail import tail
from meshctl.commands.audit_trail import trail
from meshctl.connection import PAGE_SIZE, Connection
from meshctl.output import as_dict, moment, print_json, print_table
from meshctl.session import Group, Session

DEFAULT_COUNT = 20


@click.group(cls=Group, invoke_without_command=True)
@click.option("--by", "by", default="", metavar="ACTOR", help="Only what this actor (alice, or alice@host) called.")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option(
    "-n",
    "--count",
    "number",
    type=click.IntRange(min=1),
    default=DEFAULT_COUNT,
    show_default=True,
    help="How many, counted from the newest.",
)
@click.pass_context
def audit(context: click.Context, by: str, refused: bool, number: int) -> None:
    """Show who called what, refused commands included, newest first.

    The log of decisions (`meshctl history`) shows accepted commands; this list shows refused commands too.
    For the audit events of records use `meshctl audit tail` (live) and `meshctl audit trail` (stored).
    `meshctl audit export` gives both kinds to a SIEM.

    \b
    Examples:
      meshctl audit                       the last 20 commands
      meshctl audit --refused -n 100      what was refused, and why
      meshctl audit --by alice -o json    what alice did, as JSON
    """
    if context.invoked_subcommand is not None:
        return
    session = context.ensure_object(Session)
    found = _last(session.connect(), by, refused, number)
    if session.as_json:
        print_json({"audit_events": [as_dict(each) for each in found]})
        return
    print_table(
        ("TIME", "BY", "CALL", "ABOUT", "OUTCOME", "REVISION", "REASON", "PROBLEM"),
        (
            (
                moment(each.time), actor_text(each), each.method.rsplit("/", 1)[-1], each.resource,
                "checked" if each.validate_only and each.code == "OK" else each.code.lower().replace("_", " "),
                each.revision or "-", each.reason, each.problem,
            )
            for each in found
        ),
        empty="Nobody called anything yet." if not (by or refused) else "Nothing of that kind is on record.",
    )  # fmt: skip


audit.add_command(export)
audit.add_command(tail)
audit.add_command(trail)


def _last(connection: Connection, by: str, refused: bool, number: int) -> list[admin.AuditEvent]:
    request = admin.ListAuditEventsRequest(page_size=min(number, PAGE_SIZE), actor=by, refused_only=refused)
    pages = connection.pages(connection.decisions.ListAuditEvents, request)
    return list(islice((each for page in pages for each in page.audit_events), number))
