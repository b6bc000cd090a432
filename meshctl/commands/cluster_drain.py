"""`meshctl cluster drain`: the topics of a cluster move to another one with their records, some at a time."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import click
from google.protobuf.message import Message

from mesh import durations
from mesh.rpc import drains as drains_pb
from mesh.wording import short, word
from meshctl.completions import cluster_names, member_names
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.following import followed
from meshctl.output import as_dict, length_of, moment, print_json, print_table
from meshctl.session import NameFirst, Session, pass_session

ENDS = (drains_pb.DRAIN_STATE_DONE, drains_pb.DRAIN_STATE_CANCELLED)
LOOK_SECONDS = 1.0
PLAN_SECONDS = 60.0
"""The least time-out of a plan: control asks both clusters for all topics."""
MEGABYTE = 1_000_000
COLUMNS = ("DRAIN", "FROM", "TO", "STATE", "WAITING", "MOVING", "MOVED", "LEFT", "STARTED", "BY", "NOTE")
TOPIC_COLUMNS = ("TOPIC", "STATE", "PARTITIONS", "MB", "COPY S", "MOVE", "BEHIND", "PAUSE", "RECORDS", "NOTE")

_WINDOW = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_PAUSE = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")


class Window(click.ParamType):
    """`--window`: a part of each day, in UTC."""

    name = "window"

    def convert(
        self, value: str | drains_pb.DrainWindow, param: click.Parameter | None, ctx: click.Context | None
    ) -> drains_pb.DrainWindow:
        if isinstance(value, drains_pb.DrainWindow):
            return value
        found = _WINDOW.fullmatch(value.strip())
        hours = tuple(map(int, found.groups())) if found else ()
        if not hours or hours[0] > 23 or hours[2] > 23 or hours[1] > 59 or hours[3] > 59:
            self.fail(f"{value!r} is no part of a day: write it like 01:00-05:00, in UTC", param, ctx)
        return drains_pb.DrainWindow(from_minute=hours[0] * 60 + hours[1], to_minute=hours[2] * 60 + hours[3])


class Pause(click.ParamType):
    """`--pause-at-most`: milliseconds, from a text with a unit."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _PAUSE.fullmatch(value.strip())
        milliseconds = round(float(found[1]) * (1000 if found[2] == "s" else 1)) if found else 0
        if not milliseconds:
            self.fail(f"{value!r} is no time: write it like 1s, 0.5s or 500ms", param, ctx)
        return milliseconds


C = TypeVar("C", bound=Callable[..., Any])


def bounds(rate: str, without: str) -> Callable[[C], C]:
    """The options of a batch of moves, for a command that gives them to `spec_of`. `rate`, `without`: their help."""
    options = (
        click.option(
            "--at-once", type=click.IntRange(min=1), metavar="N", help="Topics that are copied at the same time; 2."
        ),
        click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="MB/S", help=rate),
        click.option(
            "--window", type=Window(), metavar="HH:MM-HH:MM", help="Moves begin only in this part of the day, UTC."
        ),
        click.option(
            "--pause-at-most", type=Pause(), metavar="TIME", help="How long producers of a topic may wait; 1s."
        ),
        click.option(
            "--cuts",
            type=click.IntRange(min=1),
            metavar="N",
            help="Cuts that may miss this bound before a move rolls back; 3.",
        ),
        click.option(
            "--without",
            multiple=True,
            metavar="MEMBER",
            shell_complete=member_names,
            help=f"{without}, because its process has ended; again for each of several.",
        ),
    )

    def on(command: C) -> C:
        for option in reversed(options):
            command = option(command)
        return command

    return on


def spec_of(
    *,
    at_once: int | None,
    rate: float | None,
    window: drains_pb.DrainWindow | None,
    pause_at_most: int | None,
    cuts: int | None,
    without: tuple[str, ...],
) -> drains_pb.DrainSpec:
    """The batch of moves with these options (`bounds`)."""
    return drains_pb.DrainSpec(
        at_once=at_once or 0,
        bytes_per_second=round((rate or 0) * MEGABYTE),
        window=window,
        hold_budget=durations.of_ms(pause_at_most or 0),
        cuts_at_most=cuts or 0,
        without_members=without,
    )


@click.group("drain", cls=NameFirst)
def drain() -> None:
    """Move the topics of a cluster to another one with their records, some at a time.

    \b
    Examples:
      meshctl cluster drain c1 --to c2 --dry-run
      meshctl cluster drain c1 --to c2 --topics 'shop.*' --at-once 4 --rate 40 --window 01:00-05:00
      meshctl cluster drain list
      meshctl cluster drain show 3f9a01bc
      meshctl cluster drain pause 3f9a01bc
      meshctl cluster drain resume 3f9a01bc
      meshctl cluster drain cancel 3f9a01bc
    """


@drain.command()
@click.argument("cluster", metavar="CLUSTER", shell_complete=cluster_names)
@click.option("--to", "target", required=True, metavar="CLUSTER", help="The cluster to move to.")
@click.option("--topics", default="", metavar="GLOB", help="Only topics that match this pattern of * and ?.")
@bounds("Megabytes a second of all copies.", "Cut although this gateway does not answer")
@click.option("--dry-run", is_flag=True, help="Show for each topic whether it fits, and change nothing.")
@click.option("--wait", is_flag=True, help="Until the drain has ended.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def start(
    session: Session,
    /,
    cluster: str,
    target: str,
    topics: str,
    dry_run: bool,
    wait: bool,
    reason: str,
    **bounds_of_moves: Any,
) -> None:
    """Drain CLUSTER: its topics move to another cluster.

    The exit code of a dry run is 0 if each topic fits, that of --wait if each topic has moved.

    \b
    Examples:
      meshctl cluster drain c1 --to c2 --dry-run
      meshctl cluster drain c1 --to c2 --rate 20 --pause-at-most 500ms --wait
    """
    spec = spec_of(**bounds_of_moves)
    spec.source_cluster, spec.target_cluster, spec.topics = cluster, target, topics
    connection = session.connect()
    request = drains_pb.StartDrainRequest(
        spec=spec, validate_only=dry_run, reason=reason, request_id="" if dry_run else str(uuid.uuid4())
    )
    found = connection.call(connection.drains.StartDrain, request, at_least=PLAN_SECONDS)
    if not dry_run:
        found = _get(connection, found.name)
        name = found.name
        changes = followed(found, lambda: _get(connection, name), lambda of: of.state in ENDS, LOOK_SECONDS)
        for change in changes if wait else ():
            found = change
            if not session.as_json:
                click.echo(_progress(found), err=True)
    _show(session, found)
    if (dry_run or wait) and found.counts.left:
        raise MeshctlError(f"{found.counts.left} topics stay on {cluster}", ExitCode.REFUSED, status="TOPICS_LEFT")
    if wait and found.state == drains_pb.DRAIN_STATE_CANCELLED:
        raise MeshctlError(f"drain {short(found.name)} was cancelled", ExitCode.REFUSED, status="CANCELLED")


@drain.command("list")
@pass_session
def list_drains(session: Session) -> None:
    """Show the open drains and the last ended ones, the newest first.

    \b
    Example:
      meshctl cluster drain list
    """
    connection = session.connect()
    pages = connection.pages(connection.drains.ListDrains, drains_pb.ListDrainsRequest())
    found = [each for page in pages for each in page.drains]
    if session.as_json:
        print_json({"drains": [as_dict(each) for each in found]})
        return
    print_table(COLUMNS, map(_row, found), empty="No cluster is drained, or has been.")


@drain.command()
@click.argument("drain_id", metavar="ID")
@pass_session
def show(session: Session, drain_id: str) -> None:
    """Show one drain: each topic, and at the end what is still on the cluster.

    \b
    Example:
      meshctl cluster drain show 3f9a01bc
    """
    _show(session, _get(session.connect(), drain_id))


@drain.command()
@click.argument("drain_id", metavar="ID")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def pause(session: Session, drain_id: str, reason: str) -> None:
    """Begin no further move until the drain is resumed. Moves under way end as they are.

    \b
    Example:
      meshctl cluster drain pause 3f9a01bc
    """
    _change(session, lambda drains: drains.PauseDrain, drains_pb.PauseDrainRequest, drain_id, reason)


@drain.command()
@click.argument("drain_id", metavar="ID")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def resume(session: Session, drain_id: str, reason: str) -> None:
    """Go on with a paused drain.

    \b
    Example:
      meshctl cluster drain resume 3f9a01bc
    """
    _change(session, lambda drains: drains.ResumeDrain, drains_pb.ResumeDrainRequest, drain_id, reason)


@drain.command()
@click.argument("drain_id", metavar="ID")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def cancel(session: Session, drain_id: str, reason: str) -> None:
    """End a drain: no further move begins, and those under way end as they are.

    \b
    Example:
      meshctl cluster drain cancel 3f9a01bc
    """
    _change(session, lambda drains: drains.CancelDrain, drains_pb.CancelDrainRequest, drain_id, reason)


def _get(connection: Connection, drain_id: str) -> drains_pb.Drain:
    return connection.call(connection.drains.GetDrain, drains_pb.GetDrainRequest(name=_name(drain_id)))


def _change(
    session: Session, call: Callable[[Any], Any], request: Callable[..., Message], drain_id: str, reason: str
) -> None:
    """Makes a change of a drain, and shows the drain."""
    connection = session.connect()
    asked = request(name=_name(drain_id), reason=reason, request_id=str(uuid.uuid4()))
    found: drains_pb.Drain = connection.call(call(connection.drains), asked)
    if session.as_json:
        print_json(found)
        return
    click.echo(f"drain {short(found.name)} of {found.spec.source_cluster} is {_state(found)}")


def _show(session: Session, found: drains_pb.Drain) -> None:
    if session.as_json:
        print_json(found)
        return
    if found.name:
        print_table(COLUMNS, [_row(found)], empty="")
        click.echo()
    print_table(TOPIC_COLUMNS, map(_topic_row, found.topics), empty="")
    for note in found.notes:
        click.echo(note)
    if found.HasField("remainder"):
        _show_remainder(found)
    if not found.name:
        seconds = [each.seconds for each in found.topics if each.state == drains_pb.DRAIN_TOPIC_STATE_WAITING]
        least = -(-sum(seconds) // found.spec.at_once)
        click.echo(f"{found.counts.waiting} topics fit, {found.counts.left} stay; the copies take some {least} s")
        click.echo("checked only, nothing was changed")


def _show_remainder(of: drains_pb.Drain) -> None:
    cluster, left = of.spec.source_cluster, of.remainder
    for names, what in (
        (left.topics, "topics"),
        (left.rules, "rules"),
        (left.groups, "groups"),
        (left.transactional_ids, "transactional ids"),
    ):
        click.echo(f"{what} on {cluster}: {', '.join(names) or 'none'}")
    for problem in left.problems:
        click.echo(f"  {problem}")


def _row(of: drains_pb.Drain) -> tuple[object, ...]:
    counts = of.counts
    return (
        short(of.name), of.spec.source_cluster, of.spec.target_cluster, _state(of), counts.waiting, counts.moving,
        counts.moved, counts.left, moment(of.create_time), of.actor, of.problem,
    )  # fmt: skip


def _topic_row(of: drains_pb.DrainTopic) -> tuple[object, ...]:
    size = f"{of.bytes / MEGABYTE:.1f}" if of.HasField("bytes") else "-"
    moved = of.state == drains_pb.DRAIN_TOPIC_STATE_MOVED
    return (
        of.topic, word(drains_pb.DrainTopicState, of.state), of.partitions, size,
        of.seconds if of.HasField("seconds") else "-", short(of.move) or "-",
        of.behind if of.HasField("behind") else "-", length_of(of.pause),
        f"{of.records} {'confirmed' if of.confirmed else 'not confirmed'}" if moved else "-", of.problem,
    )  # fmt: skip


def _progress(of: drains_pb.Drain) -> str:
    counts = of.counts
    return (
        f"{short(of.name)} {_state(of)}: {counts.moved} moved, {counts.moving} moving, {counts.waiting} waiting, "
        f"{counts.left} left"
    )


def _state(of: drains_pb.Drain) -> str:
    return word(drains_pb.DrainState, of.state)


def _name(given: str) -> str:
    return given if given.startswith("drains/") else f"drains/{given}"
