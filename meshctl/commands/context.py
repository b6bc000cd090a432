"""`meshctl context`: named ways to reach a mesh."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import click

from meshctl.contexts import Context, load, save
from meshctl.output import print_json, print_table
from meshctl.session import Command, Group, Session, pass_session


@click.group(cls=Group)
def context() -> None:
    """Ways to reach a mesh: an address, and a certificate or a token.

    Each command uses the context in use, unless an option or $MESHCTL_ADDRESS has an address. Other options count
    before the context's. Only the user can read the file, in $MESHCTL_CONFIG_FOLDER or ~/.config/kafka-mesh.
    """


@context.command(name="list", cls=Command)
@pass_session
def list_(session: Session) -> None:
    """List the contexts; an arrow marks the one in use."""
    known = load()
    if session.as_json:
        shown = {name: {k: v for k, v in asdict(each).items() if v} for name, each in known.contexts.items()}
        print_json({"current": known.current, "contexts": shown})
        return
    print_table(
        ("", "NAME", "ADDRESS", "CERTIFICATE", "TOKEN"),
        (
            ("->" if name == known.current else "", name, each.address, each.tls_folder or "-", each.token_file or "-")
            for name, each in sorted(known.contexts.items())
        ),
        empty="There is no context: meshctl context set NAME --address HOST:PORT",
    )


@context.command(cls=Command)
@click.argument("name")
def use(name: str) -> None:
    """Use the context NAME from now on."""
    save(load().using(name))
    click.echo(f"the context in use is {name}")


@context.command(name="set", cls=Command)
@click.argument("name")
@pass_session
def set_(session: Session, name: str) -> None:
    """Make or change the context NAME, by the options of each command; an empty value takes a part away.

    \b
    Examples:
      meshctl context set prod --address control.example.com:7070 --tls-folder ~/mesh/ada
      meshctl context set prod --address control.example.com:7071 --token-file ~/mesh/token --tls-folder ""
    """
    known = load()
    given = {each.name: getattr(session, each.name, None) for each in fields(Context)}
    said = {part: value for part, value in given.items() if value is not None}
    save(known.having(name, replace(known.contexts.get(name, Context()), **said)))
    click.echo(f"context {name} is kept")
