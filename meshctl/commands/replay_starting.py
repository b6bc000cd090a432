"""How a replay is started: asked for, its plan shown, and followed to its end where that is wanted."""

from __future__ import annotations

import uuid

import click

from mesh import durations
from mesh.rpc import replays as replays_pb
from meshctl import replays
from meshctl.commands.replay_watching import follow, tell_end
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import print_json, print_table
from meshctl.replay_progress import ENDS
from meshctl.session import Session

PLAN_SECONDS = 5.0
LONGEST_COUNT = 55.0
"""Seconds that a dry run may count: control waits for a minute at most, and its answer has to come back."""
CALL_MARGIN = 5.0


def start(session: Session, spec: replays_pb.ReplaySpec, reason: str) -> replays_pb.Replay:
    """The replay, as soon as its plan is known; a dry run when it has counted."""
    connection = session.connect()
    wait = LONGEST_COUNT if spec.dry_run else PLAN_SECONDS
    request = replays_pb.StartReplayRequest(
        spec=spec, reason=reason, request_id=str(uuid.uuid4()), wait=durations.of_ms(round(wait * 1000))
    )
    return connection.call(connection.replays.StartReplay, request, at_least=wait + CALL_MARGIN)


def carry_out(
    session: Session, spec: replays_pb.ReplaySpec, reason: str, *, wait: bool, partitions: bool = False
) -> None:
    """Starts it; shows its plan, or follows it to its end."""
    started = start(session, spec, reason)
    if wait and started.state not in ENDS:
        follow_to_end(session, started, partitions=partitions, shows_plan=not session.as_json)
        return
    if started.state in ENDS and not spec.dry_run:
        tell_end(session, started)
        return
    if spec.dry_run and started.state in ENDS and started.state != replays_pb.REPLAY_STATE_DONE:
        tell_end(session, started)
    if session.as_json:
        print_json(started)
    else:
        show_plan(started)
    if spec.dry_run and started.state != replays_pb.REPLAY_STATE_DONE:
        said = f"{replays.state(started)}: {started.description}" if started.description else replays.state(started)
        see = f"`meshctl replay show {replays.short(started.name)}` shows what comes of it"
        raise MeshctlError(f"not counted yet ({said}); {see}", ExitCode.UNAVAILABLE, status="OPEN")


def follow_to_end(
    session: Session, started: replays_pb.Replay, *, partitions: bool = False, shows_plan: bool = False
) -> None:
    """Until it has ended, or until whoever watches goes: then it goes on. `shows_plan`: as soon as there is one."""
    last = follow(session, started.name, partitions=partitions, on_plan=_show_rows if shows_plan else None)
    if last is None:
        name = replays.short(started.name)
        ways = f"`meshctl replay watch {name}` follows it, `meshctl replay cancel {name}` ends it"
        click.echo(f"it goes on: {ways}", err=True)
        return
    if last.spec.dry_run and last.state == replays_pb.REPLAY_STATE_DONE and not session.as_json:
        show_plan(last)
    else:
        tell_end(session, last)


def show_plan(of: replays_pb.Replay) -> None:
    """Prints the plan of a replay, and the instances that it stops."""
    click.echo(replays.what(of.spec))
    for each in of.stopped:
        click.echo(f"  stops {each.removeprefix('instances/')} for as long as it takes")
    _show_rows(of)
    if of.description:
        click.echo(of.description)
    if of.name and of.state not in ENDS:
        name = replays.short(of.name)
        click.echo(f"replay {name} is {replays.state(of)}: `meshctl replay watch {name}` follows it")


def _show_rows(of: replays_pb.Replay) -> None:
    if of.partitions:
        columns, rows = replays.plan(of)
        print_table(columns, rows, empty="")
    elif of.HasField("totals"):
        click.echo(replays.plan_text(of.totals))
