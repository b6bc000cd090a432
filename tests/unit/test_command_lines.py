"""Pages name commands, options and settings that exist: the programs take each command line as it stands there."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from pydantic_settings import BaseSettings

from judge.cli import judge
from judge.replay.command import SUBCOMMANDS
from local.cli import main as kafka_mesh
from meshctl.cli import cli as meshctl
from meshctl.session import NameFirst
from services.control.settings import ControlSettings
from services.gateway.settings import GatewaySettings
from services.pipeline.__main__ import pipeline
from services.pipeline.settings import PipelineSettings
from services.router.settings import RouterSettings
from services.sidecar.settings import SidecarSettings
from tests.plain_english import ROOT
from tests.unit.test_pages import name, pages

PROGRAMS: dict[str, click.Command] = {"meshctl": meshctl, "kafka-mesh": kafka_mesh}
SETTINGS: dict[str, type[BaseSettings]] = {
    "CONTROL": ControlSettings,
    "GATEWAY": GatewaySettings,
    "PIPELINE": PipelineSettings,
    "ROUTER": RouterSettings,
    "SIDECAR": SidecarSettings,
}
REFERENCE = ROOT / "docs" / "reference" / "meshctl-commands.md"
"""Its block says what commands do. A line may have options of the commands beside the one that it names."""
SERVICE_OPTIONS = {"--config", "--original-config"}

BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONTINUED = re.compile(r"\\\n\s*")
TYPED = re.compile(
    r"(?:^|\| |(?<=[A-Z]=)\S+ +|' +)(?:\.venv/bin/)?(meshctl|kafka-mesh) ((?:(?! \d?>)[^|;&\n])*)", re.MULTILINE
)
MENTIONED = re.compile(r"`(?:\.venv/bin/)?(meshctl|kafka-mesh) ([^`\n]+)`")
LISTED = re.compile(r"(meshctl) (.*?)(?=, meshctl|$)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
SETTING = re.compile(r"\bKAFKA_MESH_(CONTROL|GATEWAY|PIPELINE|ROUTER|SIDECAR)_([A-Z0-9_]+)(?==)")


@dataclass(frozen=True, slots=True)
class Line:
    """A command line, or the beginning of one, and its page."""

    page: Path
    program: str
    words: str

    def __str__(self) -> str:
        return f"{name(self.page)}: {self.program} {self.words}"


def typed() -> Iterator[Line]:
    """Commands in blocks that a reader copies into a shell."""
    for page in pages():
        if page == REFERENCE:
            continue
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for program, words in TYPED.findall(CONTINUED.sub("", block)):
                yield Line(page, program, words.strip().replace("HOST:PORT", "host:9092"))


def mentioned() -> Iterator[Line]:
    """Commands in sentences, and those of the reference."""
    for page in pages():
        for program, words in MENTIONED.findall(page.read_text(encoding="utf-8")):
            yield Line(page, program, words)
    (block,) = BLOCK.findall(REFERENCE.read_text(encoding="utf-8"))
    for program, words in LISTED.findall(block):
        yield Line(REFERENCE, program, words)


def below(command: click.Command, word: str) -> click.Command | None:
    """The command that this word names. The pipeline and the judge read their own words."""
    if (command.name, word) == (kafka_mesh.name, "pipeline"):
        return pipeline
    if command is judge:
        return SUBCOMMANDS.get(word)
    return command.get_command(context(command), word) if isinstance(command, click.Group) else None


def context(command: click.Command) -> click.Context:
    return click.Context(command, info_name=command.name)


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Reads the words as the program does, and runs nothing."""
    here = command.make_context(command.name, words, parent=parent)
    if isinstance(command, click.Group):
        first, *rest = here._protected_args + here.args
        found = below(command, first)
        assert found, f"{command.name} has no command {first!r}"
        takes_name = isinstance(command, NameFirst) and first not in command.commands
        parse(found, [first, *rest] if takes_name else rest, here)


def options(command: click.Command) -> set[str]:
    if command.context_settings.get("ignore_unknown_options"):
        return SERVICE_OPTIONS
    return {option for parameter in command.get_params(context(command)) for option in parameter.opts}


def subcommands(command: click.Command) -> list[click.Command]:
    words = command.list_commands(context(command)) if isinstance(command, click.Group) else []
    return [found for word in words if (found := below(command, word))]


def named(program: click.Command, words: str) -> tuple[set[str], set[str]]:
    """The options of the commands that the words name, and those of the commands beside them."""
    reached, beside = [program], [program]
    for word in words.split():
        found = [each for choice in word.strip("[],").split("|") if (each := below(reached[0], choice))]
        if not found:
            break
        beside, reached = subcommands(reached[0]), found
    beside += subcommands(reached[0])
    return set().union(*map(options, reached)), set().union(*map(options, beside))


@pytest.mark.parametrize("line", list(typed()), ids=str)
def test_a_program_takes_each_command_line_that_a_reader_copies(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a line may name a file of examples/
    with contextlib.suppress(click.exceptions.Exit):  # --help
        parse(PROGRAMS[line.program], shlex.split(line.words, comments=True))


@pytest.mark.parametrize("line", list(mentioned()), ids=str)
def test_each_command_that_a_page_mentions_exists_with_its_options(line: Line) -> None:
    program = PROGRAMS[line.program]
    first = line.words.split()[0].strip("[],").split("|")[0]
    assert first.startswith("-") or first.isupper() or below(program, first), f"no command {first!r}"
    reached, beside = named(program, line.words)
    known = reached | beside if line.page == REFERENCE else reached
    assert set(OPTION.findall(line.words)) <= known


def test_the_reference_of_meshctl_has_each_command() -> None:
    listed = {word.strip(",") for line in mentioned() if line.page == REFERENCE for word in line.words.split()}
    assert set(meshctl.list_commands(context(meshctl))) <= listed


@pytest.mark.parametrize("page", [page for page in pages() if SETTING.search(page.read_text("utf-8"))], ids=name)
def test_each_setting_that_a_page_sets_is_one(page: Path) -> None:
    for service, field in SETTING.findall(page.read_text(encoding="utf-8")):
        assert field.lower() in SETTINGS[service].model_fields, f"KAFKA_MESH_{service}_{field}"
