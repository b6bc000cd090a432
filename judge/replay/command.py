"""`kafka-mesh judge replay`: the same bytes to two endpoints. `kafka-mesh judge record`: how the bytes are had."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from judge.protocol.connection import address
from judge.protocol.schema import ProtocolError
from judge.replay.recording import RecordingError, Tape, read
from judge.replay.replaying import replayed
from judge.replay.rules import RULES
from judge.replay.specification import SpecificationError, Specifications
from judge.replay.tapped_cable import TappedCable, carrying
from judge.replay.verdict import Verdict
from judge.systems.client_jars import client_jars


@click.command("replay")
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--a", "a", metavar="HOST:PORT,...", required=True, help="An endpoint that is right: Kafka.")
@click.option("--b", "b", metavar="HOST:PORT,...", required=True, help="The endpoint that is compared with it.")
@click.option(
    "--specifications",
    "jars",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A jar of kafka-clients.  [default: those in the cache and in Maven's repository]",
)
@click.option("--report", "folder", type=click.Path(path_type=Path), default=Path("build/replay"), show_default=True)
@click.option("--rules", "show_rules", is_flag=True, help="Also print what may differ, and why.")
def replay(
    recordings: tuple[Path, ...], a: str, b: str, jars: tuple[Path, ...], folder: Path, show_rules: bool
) -> None:
    """Send recorded requests to two Kafka endpoints, and compare their answers.

    Both should be fresh: what a recording makes, it makes on both. Ends with 1 if an answer differs where no rule
    allows it.
    """
    if show_rules:
        for rule in RULES:
            print(f"{rule.api} {rule.path}: {rule.how}. {rule.why}")
    verdict = Verdict()
    try:
        specs = Specifications(jars or client_jars())
        for path in recordings:
            print(f"{path.name} ...", flush=True)
            verdict.add(path.name, *replayed(specs, read(path), a.split(","), b.split(",")))
    except (ProtocolError, RecordingError, SpecificationError) as error:
        raise click.ClickException(str(error)) from error
    verdict.write(folder)
    print(verdict.text())
    sys.exit(1 if verdict.findings else 0)


@click.command("record")
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--to", metavar="HOST:PORT", required=True, help="The endpoint; it must advertise the address below.")
@click.option("--listen", metavar="HOST:PORT", required=True, help="Where clients bootstrap.")
@click.option("--about", default="", help="What is recorded, for those who read the recording.")
def record(recording: Path, to: str, listen: str, about: str) -> None:
    """Stand between clients and an endpoint, and keep what they say to each other, until Ctrl-C."""
    tape = Tape()
    listener = socket.create_server(address(listen))
    with carrying(TappedCable(address(to), tape=tape, _listener=listener)):
        print(f"recording {listen} to {to}; Ctrl-C ends it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()
    try:
        tape.recording({"about": about, "to": to}).write(recording)
    except RecordingError as error:
        raise click.ClickException(str(error)) from error
    print(f"{len(tape.events)} events in {recording}")


SUBCOMMANDS: Mapping[str, click.Command] = {"replay": replay, "record": record}


class WithSubcommands(click.Command):
    """A command with an argument of its own, of which some first words are commands themselves."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        found = SUBCOMMANDS.get(args[0]) if args else None
        if found is None:
            return super().make_context(info_name, args, parent, **extra)
        return found.make_context(f"{info_name or self.name} {found.name}", args[1:], parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands of their own"):
            formatter.write_dl([(name, each.get_short_help_str()) for name, each in SUBCOMMANDS.items()])
