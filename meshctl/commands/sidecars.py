"""`meshctl sidecars`: which there are, how they do, and how much they log."""

from __future__ import annotations

from collections import Counter

import click

from mesh.rpc import admin, events
from mesh.wording import short
from meshctl.commands.orders import Ordering, carry_out, question_options
from meshctl.commands.subscriptions import subscriptions
from meshctl.completions import sidecar_names
from meshctl.output import age, as_dict, print_json, print_table
from meshctl.session import Group, Session, pass_session

sidecar_argument = click.argument("sidecar", metavar="SIDECAR", shell_complete=sidecar_names)


@click.group(cls=Group)
def sidecars() -> None:
    """Sidecars: list them, ask one how it does and what it is, read and set its log levels.

    Each question is an event in the log, and so is its answer. Their consumers: `meshctl instances`.

    \b
    Examples:
      meshctl sidecars list
      meshctl sidecars health sidecar-1
      meshctl sidecars log-levels sidecar-1 services.sidecar=DEBUG
    """


sidecars.add_command(subscriptions)


@sidecars.command("list")
@pass_session
def list_sidecars(session: Session) -> None:
    """Show the sidecars that control hears of, and those that hold consumers and are silent.

    \b
    Examples:
      meshctl sidecars list
      meshctl sidecars list -o json
    """
    status = session.connect().status()
    heard = [each for each in status.members if each.kind == admin.MEMBER_KIND_SIDECAR]
    names = {short(each.name) for each in heard}
    held = Counter(each.sidecar for each in status.instances)
    silent = [
        admin.Member(name=f"members/{name}", kind=admin.MEMBER_KIND_SIDECAR) for name in sorted(held.keys() - names)
    ]
    if session.as_json:
        print_json({"sidecars": [as_dict(each) for each in (*heard, *silent)]})
        return
    print_table(
        ("SIDECAR", "VERSION", "ADDRESS", "INSTANCES", "SEEN"),
        (
            (
                short(each.name), each.version or "-", each.address or "-", held[short(each.name)],
                age(each.last_seen_time) if each.HasField("last_seen_time") else "not heard of",
            )
            for each in (*heard, *silent)
        ),
        empty="No sidecar is connected.",
    )  # fmt: skip


@sidecars.command()
@sidecar_argument
@question_options
@pass_session
def health(session: Session, sidecar: str, ordering: Ordering) -> None:
    """Ask a sidecar how it does, check by check.

    \b
    Example:
      meshctl sidecars health sidecar-1
    """
    carry_out(session, _name(sidecar), events.SidecarCommand(check_health=events.CheckHealth()), ordering)


@sidecars.command()
@sidecar_argument
@question_options
@pass_session
def info(session: Session, sidecar: str, ordering: Ordering) -> None:
    """Ask a sidecar what it is: versions, host, settings with secrets masked.

    \b
    Example:
      meshctl sidecars info sidecar-1 -o json
    """
    carry_out(session, _name(sidecar), events.SidecarCommand(get_info=events.GetInfo()), ordering)


@sidecars.command("log-levels")
@sidecar_argument
@click.argument("levels", metavar="[LOGGER=LEVEL]...", nargs=-1)
@question_options
@pass_session
def log_levels(session: Session, sidecar: str, levels: tuple[str, ...], ordering: Ordering) -> None:
    """Show how much a sidecar logs; with LOGGER=LEVEL set it first. ROOT is the logger above all.

    \b
    Examples:
      meshctl sidecars log-levels sidecar-1
      meshctl sidecars log-levels sidecar-1 services.sidecar.consuming=DEBUG
      meshctl sidecars log-levels sidecar-1 ROOT=WARNING --reason 'too much is logged'
    """
    if levels:
        command = events.SidecarCommand(set_log_levels=events.SetLogLevels(levels=dict(map(_level, levels))))
    else:
        command = events.SidecarCommand(get_log_levels=events.GetLogLevels())
    carry_out(session, _name(sidecar), command, ordering)


def _level(said: str) -> tuple[str, str]:
    logger, separator, level = said.rpartition("=")
    if not separator or not logger or not level:
        raise click.UsageError(f"{said!r} is no LOGGER=LEVEL, like services.sidecar=DEBUG")
    return logger, level.upper()


def _name(given: str) -> str:
    return given if given.startswith("members/") else f"members/{given}"
