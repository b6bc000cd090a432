"""`meshctl canary`: the end of a change that some clients try first. Rule commands begin one with `--canary`."""

from __future__ import annotations

import uuid

import click

from mesh.rpc import admin
from meshctl.output import print_json
from meshctl.session import Command, Group, Session, pass_session


@click.group(cls=Group)
def canary() -> None:
    """A change that some clients try first: let everybody follow, or give it up.

    \b
    Examples:
      meshctl rule set --client-software-prefix sarama/ --nodes single --canary 10 --canary-for 300
      meshctl status                          how their requests end
      meshctl canary promote
    """


@canary.command(cls=Command)
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def promote(session: Session, reason: str) -> None:
    """Let everybody follow the change now.

    \b
    Examples:
      meshctl canary promote --reason "looks good"
    """
    _end(session, reason, promote=True)


@canary.command(cls=Command)
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def abort(session: Session, reason: str) -> None:
    """Give the change up: the rules are as before.

    \b
    Examples:
      meshctl canary abort --reason "clients complain"
    """
    _end(session, reason, promote=False)


def _end(session: Session, reason: str, *, promote: bool) -> None:
    request = admin.EndCanaryRequest(promote=promote, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.rules.EndCanary, request)
    if session.as_json:
        print_json(answer)
        return
    outcome = "everybody follows the change" if promote else "the change is given up, the rules are as before"
    click.echo(f"{outcome} (revision {answer.revision})")
