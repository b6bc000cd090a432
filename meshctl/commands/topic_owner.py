"""`meshctl topic own`: who owns topics."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import click

from mesh.rpc import topics as pb
from meshctl.output import print_json, print_table
from meshctl.session import Command, Session, pass_session

COLUMNS = ("TOPIC", "OWNER", "REVISION")


@click.command(cls=Command)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--owner", default="", metavar="NAME", help="The team or person.")
@click.option("--nobody", is_flag=True, help="Nobody owns it any more.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def own(session: Session, topics: Sequence[str], owner: str, nobody: bool, reason: str) -> None:
    """Say who owns each TOPIC. An owner is a name for people, and gives no rights.

    \b
    Examples:
      meshctl topic own apples --owner team-x
      meshctl topic own apples pears --owner ada@shop.example
      meshctl topic own apples --nobody
    """
    if bool(owner) is nobody:
        raise click.UsageError("say who: --owner NAME, or --nobody; one of the two")
    connection = session.connect()
    rows = []
    for topic in topics:
        request = pb.SetTopicOwnerRequest(
            name=f"topics/{topic}", owner=owner, reason=reason, request_id=str(uuid.uuid4())
        )
        answer = connection.call(connection.topics.SetTopicOwner, request)
        rows.append((topic, owner or "-", str(answer.revision or "-")))
    if session.as_json:
        owners = [dict(zip(("topic", "owner", "revision"), row, strict=True)) for row in rows]
        print_json({"owners": owners})
    else:
        print_table(COLUMNS, rows, empty="")
