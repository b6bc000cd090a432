"""`meshctl freeze` and `thaw`: no changes for a while."""

from __future__ import annotations

import uuid

import click

from mesh.rpc import admin
from meshctl.output import print_json
from meshctl.session import Command, Session, pass_session


@click.command(cls=Command)
@click.option("--reason", required=True, help="Why, for those whose changes are refused meanwhile.")
@pass_session
def freeze(session: Session, reason: str) -> None:
    """Refuse every change of the mesh from now on, until `meshctl thaw`.

    Traffic goes on, and so do questions and dry runs. Scheduled changes whose time comes meanwhile are refused.

    \b
    Examples:
      meshctl freeze --reason "quarter's end"
      meshctl status                          says who froze the mesh, when and why
    """
    request = admin.FreezeRequest(reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.changes.Freeze, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"frozen since revision {answer.revision}: changes are refused until meshctl thaw")


@click.command(cls=Command)
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def thaw(session: Session, reason: str) -> None:
    """Take changes again after `meshctl freeze`.

    \b
    Examples:
      meshctl thaw --reason "the books are closed"
    """
    request = admin.ThawRequest(reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.changes.Thaw, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"thawed (revision {answer.revision})" if answer.revision else "the mesh is not frozen")
