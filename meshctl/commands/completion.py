"""`meshctl completion`: the script that a shell loads to complete meshctl's words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

COMPLETION_VARIABLE = "_MESHCTL_COMPLETE"  # the name that click derives from the program's


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  source <(meshctl completion bash)      (in ~/.bashrc)
    zsh:   source <(meshctl completion zsh)       (in ~/.zshrc, after compinit)
    fish:  meshctl completion fish > ~/.config/fish/completions/meshctl.fish
    """
    found = get_completion_class(shell)
    assert found is not None  # click has a class for each of the three choices
    click.echo(found(context.find_root().command, {}, "meshctl", COMPLETION_VARIABLE).source())
