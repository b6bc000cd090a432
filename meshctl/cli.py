"""The root of the command line: `meshctl`."""

from __future__ import annotations

import importlib

import click

from meshctl.failures import EXIT_CODES_HELP
from meshctl.session import Group

_COMMANDS = {
    **{name: name for name in (
        "access", "acl", "apply", "audit", "canary", "clients", "cluster", "completion", "content", "context",
        "dashboard", "groups", "instances", "jobs", "lineage", "listener", "login", "mcp", "mirror", "proposals",
        "protection", "quota", "receipts", "replay", "rule", "schedule", "sidecars", "tenants", "topic", "traffic",
        "transactions", "users", "validation",
    )},
    **dict.fromkeys(("explain", "status", "watch"), "decision"),
    **dict.fromkeys(("freeze", "thaw"), "freezing"),
    **dict.fromkeys(("diff", "history", "revert"), "past"),
    "export": "apply",
}  # fmt: skip
"""Each command, and its module in `meshctl.commands`."""
_HELP = f"""Operate a Kafka mesh: which clusters there are, which topics live where, and why.

Talks to control over gRPC; finds the local mesh by itself.

{EXIT_CODES_HELP}"""


class _Root(Group):
    """Imports a command when somebody asks for it: the imports of all of them are half of the time of a start."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            module = importlib.import_module(f"meshctl.commands.{_COMMANDS[cmd_name]}")
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Root, help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-mesh", prog_name="meshctl")
def cli() -> None:
    """See `_HELP`: a docstring can't be composed."""


def main() -> None:
    """The console script."""
    cli(prog_name="meshctl")
