"""The place in docs/reference/meshctl-options.md: each command of meshctl with its arguments and options."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import click

from docs.tables import REFERENCE, filled, table
from meshctl.cli import cli

PAGE = REFERENCE / "meshctl-options.md"
_HEAD = ("option", "meaning")


def written() -> str:
    """The page with what the commands say of themselves."""
    found = dict(commands())
    shared = _shared(found.values())
    sections = ["## Options of all commands that ask control", table(_HEAD, shared.items())]
    sections += [part for path, command in found.items() for part in _section(path, command, shared)]
    return filled(PAGE, {"": "\n\n".join(sections)})


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each command that does something, by its path: "rule set"."""
    yield from _below(cli, "")


def _below(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        assert command is not None, name
        if command.hidden:
            continue
        whole = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from _below(command, whole)
        else:
            yield whole, command


def _shared(found: Collection[click.Command]) -> dict[str, str]:
    """The options, with their meanings, that nearly all commands have."""
    counted = Counter(option for command in found for option in _options(command).items())
    return dict(option for option, times in counted.items() if times > 0.8 * len(found))


def _section(path: str, command: click.Command, shared: Mapping[str, str]) -> Iterator[str]:
    context = click.Context(command, info_name=f"meshctl {path}")
    yield f"## {path}"
    yield f"`{' '.join(command.get_usage(context).removeprefix('Usage: ').split())}`"
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    own = [option for option in _options(command).items() if option not in shared.items()]
    if own:
        yield table(_HEAD, own)


def _options(command: click.Command) -> dict[str, str]:
    """The meaning of each option of a command."""
    context = click.Context(command)
    records = (each.get_help_record(context) for each in command.params if isinstance(each, click.Option))
    return {f"`{record[0]}`": " ".join(record[1].split()) for record in records if record is not None}


def _paragraphs(help_text: str) -> Iterator[str]:
    """A help text in Markdown. `\\b` begins a paragraph that keeps its lines: examples."""
    for paragraph in re.split(r"\n\s*\n", help_text):
        lines = paragraph.strip("\n").replace("\f", "")
        if lines.startswith("\b"):
            yield "```\n" + lines.removeprefix("\b").strip("\n") + "\n```"
        elif lines:
            yield " ".join(lines.split())
