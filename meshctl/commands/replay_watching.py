"""`meshctl replay list|show|watch|cancel`, and how a replay is followed to its end: a bar, lines, or JSON."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence

import click
from rich.console import Console

from mesh.rpc import replays as replays_pb
from meshctl import replays
from meshctl.commands.replay_bar import with_bar
from meshctl.completions import open_replay_ids, replay_ids
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.looking import Looking, look_options, show_looks
from meshctl.output import as_dict, moment, print_json, print_table, table
from meshctl.reopening import reopened
from meshctl.replay_progress import ENDS, Pace, line, progress, progress_text, share_of, under_way
from meshctl.session import Command, Session, pass_session

COLUMNS = ("REPLAY", "WHAT", "STATE", "PROGRESS", "MEMBER", "STARTED", "BY", "NOTE")
NONE = "Nothing is, or was, consumed again."
INTERVAL_SECONDS = 2.0
USUAL_REPLAYS = 20
LINE_EVERY = 5.0
"""Seconds between two lines of progress where nobody sits before a terminal."""


def name_of(given: str) -> str:
    """The resource name of a replay."""
    return given if given.startswith("replays/") else f"replays/{given}"


@click.command("list", cls=Command)
@click.option("--open", "open_only", is_flag=True, help="Only those that have not ended.")
@click.option(
    "-l", "--limit", type=click.IntRange(min=1), default=USUAL_REPLAYS, show_default=True, help="How many, at most."
)
@look_options(INTERVAL_SECONDS)
@pass_session
def list_replays(session: Session, open_only: bool, limit: int, looking: Looking) -> None:
    """Show replays, the newest first. `meshctl history` shows old replays.

    \b
    Examples:
      meshctl replay list
      meshctl replay list --open -w
    """
    connection = session.connect()

    def print_one(found: Sequence[replays_pb.Replay]) -> None:
        if session.as_json:
            print_json({"replays": [as_dict(each) for each in found]}, one_line=looking.again)
        else:
            print_table(COLUMNS, map(_row, found), empty=NONE)

    show_looks(
        session,
        looking,
        look=lambda: connection.all_replays(limit, open_only=open_only),
        print_one=print_one,
        as_table=lambda found: table(COLUMNS, map(_row, found)),
    )


def _row(replay: replays_pb.Replay) -> Sequence[object]:
    return (
        replays.short(replay.name), replays.what(replay.spec), replays.state(replay), progress_text(replay),
        replay.member.removeprefix("members/") or "-", moment(replay.create_time), replay.actor, replay.description,
    )  # fmt: skip


partitions_option = click.option("--partitions", is_flag=True, help="Partition by partition, however many there are.")


@click.command(cls=Command)
@click.argument("replay", shell_complete=replay_ids)
@partitions_option
@pass_session
def show(session: Session, replay: str, partitions: bool) -> None:
    """Show one replay: what was asked for, how far it is, partition by partition.

    \b
    Examples:
      meshctl replay show 3f9a01bc
      meshctl replay show 3f9a01bc --partitions       each of some thousands
    """
    connection = session.connect()
    found = connection.call(connection.replays.GetReplay, replays_pb.GetReplayRequest(name=name_of(replay)))
    if session.as_json:
        print_json(found)
        return
    click.echo(f"{replays.short(found.name)}: {replays.what(found.spec)}")
    for label, text in replays.facts(found):
        click.echo(f"  {label + ':':<10}{text}")
    if found.spec.WhichOneof("destination") in ("seek", "group"):
        print_table(*replays.plan(found), empty="")
    elif found.partitions:
        print_table(*replays.course(found, all_partitions=partitions), empty="")
    elif found.HasField("totals"):
        click.echo(f"  {'was at:':<10}{progress_text(found)}; its partitions are in the log alone")


@click.command(cls=Command)
@click.argument("replay", shell_complete=open_replay_ids)
@partitions_option
@pass_session
def watch(session: Session, replay: str, partitions: bool) -> None:
    """Follow a replay to its end, with a bar; with lines where there is no terminal, and -o json a document each.

    Ctrl-C ends the watching, not the replay. With --partitions, those that are under way have bars of their own; as
    JSON, the first document has all partitions, and each one after it those that changed.

    \b
    Examples:
      meshctl replay watch 3f9a01bc
      meshctl replay watch 3f9a01bc --partitions
    """
    last = follow(session, name_of(replay), each=print_change if session.as_json else None, partitions=partitions)
    if last is not None:
        tell_end(session, last, told=session.as_json)


@click.command(cls=Command)
@click.argument("replay", shell_complete=open_replay_ids)
@click.option("--reason", default="", help="Why, for the history.")
@click.option("--wait", is_flag=True, help="Until it has ended.")
@pass_session
def cancel(session: Session, replay: str, reason: str, wait: bool) -> None:
    """End a replay at its present position. Acknowledged records stay acknowledged.

    \b
    Example:
      meshctl replay cancel 3f9a01bc --reason 'wrong topic'
    """
    connection = session.connect()
    request = replays_pb.CancelReplayRequest(name=name_of(replay), reason=reason, request_id=str(uuid.uuid4()))
    found = connection.call(connection.replays.CancelReplay, request)
    if wait and found.state not in ENDS:
        found = follow(session, found.name) or found
    if session.as_json:
        print_json(found)
        return
    ended = found.state in ENDS
    said = f"{replays.state(found)}: {found.description}" if ended else "is to end where it is; its member says when"
    click.echo(f"replay {replays.short(found.name)} {said}")


def print_change(replay: replays_pb.Replay) -> None:
    print_json(replay, one_line=True)


def follow(
    session: Session,
    name: str,
    each: Callable[[replays_pb.Replay], None] | None = None,
    *,
    partitions: bool = False,
    on_plan: Callable[[replays_pb.Replay], None] | None = None,
) -> replays_pb.Replay | None:
    """The replay when it has ended; None if the user stopped watching before. `each`: instead of a bar or lines.
    `on_plan` is called once, as soon as there is one.
    """
    stream = click.get_text_stream("stderr")
    changes = _changes(session.connect(), name, partitions=partitions)
    if on_plan is not None:
        changes = _telling_plan(changes, on_plan)
    last: replays_pb.Replay | None = None
    try:
        if each is not None:
            for last in changes:
                each(last)
        elif session.as_json:
            *_, last = changes
        elif stream.isatty():
            last = with_bar(changes, Console(file=stream, highlight=False), partitions=partitions)
        else:
            last = _with_lines(changes, partitions=partitions)
    except KeyboardInterrupt:
        return None
    return last


def tell_end(session: Session, replay: replays_pb.Replay, *, told: bool = False) -> None:
    """Prints the end of the replay; a replay that failed or was cancelled ends the command with an error. `told`: its
    document is printed.
    """
    if session.as_json and not told:
        print_json(replay)
    name, state = replays.short(replay.name), replays.state(replay)
    if replay.state not in ENDS:
        raise MeshctlError(f"replay {name} is {state}; nobody watches it any more", ExitCode.UNAVAILABLE, status="OPEN")
    if replay.state != replays_pb.REPLAY_STATE_DONE:
        raise MeshctlError(f"replay {name} {state}: {replay.description}", ExitCode.REFUSED, status=state.upper())
    if not session.as_json:
        far = progress_text(replay)
        parts = ("" if far == "-" or _is_move(replay) else far, replay.description)
        said = ", ".join(text for text in parts if text)
        click.echo(f"replay {name} {state}{f': {said}' if said else ''}")


def _is_move(replay: replays_pb.Replay) -> bool:
    return replay.spec.WhichOneof("destination") in ("seek", "group")


def _changes(connection: Connection, name: str, *, partitions: bool) -> Iterator[replays_pb.Replay]:
    """The replay after each change, to its end: the stream is opened again when it ends before."""
    for replay in reopened(lambda: connection.watch_replay(name, partitions=partitions), is_there=True):
        yield replay
        if replay.state in ENDS:
            return


def _telling_plan(
    changes: Iterator[replays_pb.Replay], on_plan: Callable[[replays_pb.Replay], None]
) -> Iterator[replays_pb.Replay]:
    told = False
    for replay in changes:
        if not told and (replay.partitions or replay.HasField("totals")):
            told = True
            on_plan(replay)
        yield replay


def _with_lines(changes: Iterator[replays_pb.Replay], *, partitions: bool) -> replays_pb.Replay | None:
    last, said, at, pace = None, "", time.monotonic(), Pace()
    for last in changes:
        now = time.monotonic()
        pace.saw(progress(last), now)
        if last.state in ENDS:
            break
        if said == replays.state(last) and now - at < LINE_EVERY:
            continue
        click.echo(line(last, pace, replays.state(last)), err=True)
        for each in under_way(last.partitions) if partitions else ():
            click.echo(f"  {each.topic}/{each.partition} {share_of(each):.0%} ({each.records} records)", err=True)
        said, at = replays.state(last), now
    return last
