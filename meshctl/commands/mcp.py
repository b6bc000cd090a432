"""`meshctl mcp`: the tools of meshctl for an assistant, over the Model Context Protocol."""

from __future__ import annotations

import click

from meshctl.failures import ExitCode, MeshctlError
from meshctl.session import Command, Session, pass_session

EXTRA = "kafka-mesh[mcp]"


@click.command(cls=Command)
@click.option("--allow-changes", is_flag=True, help="Plans can be carried out, each after a confirmation.")
@pass_session
def mcp(session: Session, allow_changes: bool) -> None:
    """Serve an assistant over the Model Context Protocol, on standard input and output.

    The assistant asks control with your own certificate or token, and your role decides. Without --allow-changes the
    assistant only reads, and makes dry runs. With it, a change has two steps: a plan with a token that counts once,
    and its confirmation.

    \b
    Examples:
      meshctl mcp
      meshctl mcp --context production
      meshctl mcp --allow-changes
    """
    if session.break_glass:
        raise MeshctlError("an assistant declares no emergency: leave --break-glass out", ExitCode.BAD_REQUEST)
    try:
        from meshctl.assistant.server import made
    except ModuleNotFoundError as error:
        text = f"meshctl mcp needs a package that is missing, {error.name}: install the extra {EXTRA}"
        raise MeshctlError(text, ExitCode.BAD_REQUEST) from error
    made(session, allow_changes=allow_changes).run()
