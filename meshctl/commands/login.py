"""`meshctl login`: a token for a context."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from meshctl.contexts import Context, folder, load, read_token, save, write_secretly
from meshctl.device_flow import Login, token_of
from meshctl.session import Command, Session, pass_session


@click.command(cls=Command)
@click.option("--issuer", metavar="URL", help="The issuer of tokens (OIDC); that of the last login by default.")
@click.option("--client-id", metavar="ID", help="This program at the issuer; that of the last login by default.")
@click.option("--scope", default="openid", show_default=True, help="The scope that the token is asked for.")
@pass_session
def login(session: Session, issuer: str | None, client_id: str | None, scope: str) -> None:
    """Get a token in a browser (device flow), or take that of --token-file, for the context in use or --context.

    \b
    Examples:
      meshctl context set prod --address control.example.com:7071
      meshctl login --context prod --issuer https://login.example.com --client-id meshctl
      meshctl login --context prod --token-file ~/mesh/token
    """
    known = load()
    name = session.context or known.current
    if not name:
        raise click.UsageError("no context is in use: make one with meshctl context set NAME --address HOST:PORT")
    context = known.contexts.get(name, Context())
    if session.token_file:
        read_token(Path(session.token_file))
        context = replace(context, token_file=str(Path(session.token_file).absolute()))
    else:
        context = replace(context, issuer=issuer or context.issuer, client_id=client_id or context.client_id)
        if not (context.issuer and context.client_id):
            raise click.UsageError("say --issuer and --client-id, or --token-file")
        token = token_of(Login(context.issuer, context.client_id, scope), _show)
        path = folder() / "tokens" / name
        write_secretly(path, f"{token}\n")
        context = replace(context, token_file=str(path))
    save(known.having(name, context))
    click.echo(f"context {name} has a token")


def _show(address: str, code: str) -> None:
    click.echo(f"Open {address} in a browser, and enter the code {code}")
