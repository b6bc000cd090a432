"""`meshctl replay`: records are consumed again, by a backend, an instance or a group, or go back to their topic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

import click

from mesh.rpc import replays as replays_pb
from mesh.rpc.dead_letters import REASONS
from meshctl import replays
from meshctl.commands.replay_copying import copy, resume
from meshctl.commands.replay_starting import carry_out, follow_to_end, show_plan
from meshctl.commands.replay_starting import start as start_replay
from meshctl.commands.replay_watching import cancel, list_replays, show, watch
from meshctl.completions import instance_names, sidecar_names
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import print_json
from meshctl.replays import Place, Range, Where
from meshctl.session import Group, Session, pass_session

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def replay(context: click.Context) -> None:
    """Consume records again, or copy them: start, show, watch, cancel or resume a replay.

    A replay is carried out by a sidecar, a copy by a pipeline; it survives them, and is kept in the log. Seeks of
    instances and resets of groups are control's own.

    \b
    Examples:
      meshctl replay start --to backend --topic orders --from -2h --rate 500 --wait
      meshctl replay start --to backend --sidecar s1 --range orders/0:10..25 --range orders/1:7..30
      meshctl replay dead-letters orders --to source --reason retries --dry-run
      meshctl replay copy --from orders --to orders-again --since -2h --wait
      meshctl replay instance billing.one --first
      meshctl replay group billing --topic orders --to-time -1d --stop
      meshctl replay list --open -w
    """
    if context.invoked_subcommand is None:
        context.invoke(list_replays)


for _command in (copy, list_replays, show, watch, cancel, resume):
    replay.add_command(_command)


def _records_options(command: F) -> F:
    """Which records, how fast, by whom; given to the command as one spec without ranges' topics."""
    for option in (
        click.option("--wait", is_flag=True, help="Follow it to its end."),
        click.option("--dry-run", is_flag=True, help="Only count: nothing is delivered."),
        click.option(
            "--rate", type=click.FloatRange(min=0), default=0.0, metavar="N", help="Records a second, at most."
        ),
        click.option(
            "--until",
            "end",
            type=Place(),
            metavar="PLACE",
            help="End before this place; by default at the present end.",
        ),
        click.option("--from", "start", type=Place(), metavar="PLACE", help="Offset, time, or -2h; the first record."),
        click.option(
            "--partition",
            "partitions",
            type=click.IntRange(min=0),
            multiple=True,
            metavar="P",
            help="Only this partition.",
        ),
        click.option("--path", default="", metavar="PATH", help="Path of the backend; the usual one otherwise."),
        click.option("--progress-group", default="", metavar="G", help="Group that keeps how far it is."),
        click.option("--last-retry", is_flag=True, help="Records that fail again become no dead letters."),
        click.option(
            "--sidecar",
            default="",
            metavar="NAME",
            shell_complete=sidecar_names,
            help="The sidecar that does it; by default any.",
        ),
    ):
        command = option(command)
    return command


@replay.command()
@click.option(
    "--to", type=click.Choice(["backend", "source"]), required=True, help="Source: --dead-letters, or --to-topic."
)
@click.option(
    "--topic", "topics", multiple=True, metavar="T", help="All of it, or as --partition, --from, --until say."
)
@click.option("--range", "ranges", type=Range(), multiple=True, metavar="T/P:FROM..UNTIL", help="Instead of --topic.")
@click.option("--to-topic", default="", metavar="T", help="With --to source: all of them go to this topic.")
@click.option("--dead-letters", is_flag=True, help="The topics' dead letters, all of them; see also dead-letters.")
@click.option("--reason", default="", help="Why, for the history.")
@_records_options
@pass_session
def start(session: Session, /, to: str, topics: Sequence[str], ranges: Sequence[Any], reason: str, **said: Any) -> None:
    """Let a backend have records of topics again, in batches as its reactive consumer has them.

    A place is an offset, a time (2026-11-21T20:00:00Z) or so long ago (-2h).

    \b
    Examples:
      meshctl replay start --to backend --topic orders --from -2h --until -1h --wait
      meshctl replay start --to backend --topic orders --partition 0 --from 1500 --rate 200
      meshctl replay start --to backend --range orders/0:10..25 --range orders/1:7..30 --dry-run
    """
    if bool(topics) is bool(ranges):
        raise click.UsageError("say which records: --topic T, or --range T/P:FROM..UNTIL; one of the two")
    if ranges and (said["partitions"] or said["start"] is not None or said["end"] is not None):
        raise click.UsageError("a --range says its partition and places itself: orders/0:10..25")
    spec = _spec(to, list(ranges) or _ranges(topics, said), said)
    spec.dead_letters = said["dead_letters"]
    if said["to_topic"]:
        if to != "source":
            raise click.UsageError("--to-topic is about --to source; a backend has a --path")
        spec.source.topic = said["to_topic"]
    carry_out(session, spec, reason, wait=said["wait"])


@replay.command("dead-letters")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--to", type=click.Choice(["backend", "source"]), required=True, help="The backend, or their own topic.")
@click.option("--reason", "reasons", type=click.Choice(REASONS), multiple=True, help="Only those that failed so.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only those with this key.")
@click.option(
    "--offset",
    "offsets",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this offset, with one --partition.",
)
@click.option("--why", default="", metavar="TEXT", help="Why you do it, for the history.")
@_records_options
@pass_session
def dead_letters(session: Session, /, topics: Sequence[str], to: str, why: str, **said: Any) -> None:
    """Try dead letters of TOPIC again: at the backend, or back in the topic that they came from, each once.

    TOPIC is the one that they came from; with its extension (orders.dlq) it may be said, too.

    \b
    Examples:
      meshctl replay dead-letters orders --to backend --wait
      meshctl replay dead-letters orders --to source --reason retries --key order-7
      meshctl replay dead-letters orders --to source --partition 0 --offset 12 --offset 15
    """
    spec = _spec(to, _ranges(topics, said), said)
    spec.dead_letters = True
    for name in ("reasons", "keys", "offsets"):
        if said[name]:
            getattr(spec.filter, name).extend(said[name])
    carry_out(session, spec, why, wait=said["wait"])


def _goes_on_options(command: F) -> F:
    """The new position of a seek or a group; given to the command as `ranges`, made of its topics."""

    @click.option(
        "--to-offset", type=click.IntRange(min=0), metavar="N", help="This record is next; needs a partition."
    )
    @click.option("--to-time", type=Place(), metavar="TIME", help="The first record since then: a time, or -2h.")
    @click.option("--first", is_flag=True, help="The first record there is.")
    @click.option("--last", is_flag=True, help="The end: only what comes from now on.")
    @click.option(
        "--partition", "partitions", type=click.IntRange(min=0), multiple=True, metavar="P", help="Only this partition."
    )
    @click.option("--dry-run", is_flag=True, help="Only show the plan.")
    @click.option("--yes", is_flag=True, help="Don't ask.")
    @click.option("--no-wait", is_flag=True, help="Don't wait for its end.")
    @click.option("--reason", default="", help="Why, for the history.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        topics: Sequence[str],
        partitions: Sequence[int],
        to_offset: int | None,
        to_time: Where | None,
        first: bool,
        last: bool,
        **kwargs: Any,
    ) -> Any:
        if [to_offset is not None, to_time is not None, first, last].count(True) != 1:
            raise click.UsageError("say where to go on: --to-offset N, --to-time TIME, --first or --last; one of them")
        if to_time is not None and not isinstance(to_time, datetime):
            raise click.UsageError(f"{to_time} is an offset; --to-offset {to_time} goes there")
        ranges = replays.ranges_of(topics or ("",), partitions, to_offset if to_time is None else to_time, None)
        for each in ranges if last else ():
            each.start_at_end = True
        return command(*args, ranges=ranges, **kwargs)

    return cast(F, wrapped)


@replay.command()
@click.argument("instance", metavar="GROUP.INSTANCE", shell_complete=instance_names)
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only in this topic; in all that it has otherwise.")
@_goes_on_options
@pass_session
def instance(session: Session, /, instance: str, ranges: Sequence[replays_pb.ReplayRange], **said: Any) -> None:
    """Let a consumer that a sidecar holds go on elsewhere, with the plan shown first.

    \b
    Examples:
      meshctl replay instance billing.one --first
      meshctl replay instance billing.one --topic orders --partition 0 --to-offset 500 --yes
    """
    name = instance if instance.startswith("instances/") else f"instances/{instance}"
    spec = replays_pb.ReplaySpec(ranges=ranges, seek=replays_pb.ReplayBySeek(instance=name))
    _planned_first(session, spec, **said)


@replay.command()
@click.argument("group")
@click.option("--topic", "topics", multiple=True, required=True, metavar="T", help="In this topic; several times.")
@click.option("--stop", is_flag=True, help="Drain those members that sidecars hold for as long as it takes.")
@_goes_on_options
@pass_session
def group(session: Session, /, group: str, stop: bool, ranges: Sequence[replays_pb.ReplayRange], **said: Any) -> None:
    """Let a whole consumer group go on elsewhere: its offsets are set, on whichever clusters they are kept.

    Refused while the group has members. With --stop those that sidecars hold are drained, and go on afterwards,
    whatever becomes of it; other members are named, and have to be stopped by their owners.

    \b
    Examples:
      meshctl replay group billing --topic orders --to-time -2h --dry-run
      meshctl replay group billing --topic orders --partition 0 --to-offset 1500
      meshctl replay group billing --topic orders --topic returns --first --stop --yes
    """
    wanted = replays_pb.ReplayByGroup(group=group, stop=stop)
    _planned_first(session, replays_pb.ReplaySpec(ranges=ranges, group=wanted), **said)


def _ranges(topics: Sequence[str], said: dict[str, Any]) -> list[replays_pb.ReplayRange]:
    return replays.ranges_of(topics, said["partitions"], said["start"], said["end"])


def _spec(to: str, ranges: Sequence[replays_pb.ReplayRange], said: dict[str, Any]) -> replays_pb.ReplaySpec:
    spec = replays_pb.ReplaySpec(ranges=ranges, rate=said["rate"], dry_run=said["dry_run"])
    destination = getattr(spec, to)
    destination.SetInParent()
    destination.sidecar, destination.group = said["sidecar"], said["progress_group"]
    if to == "backend":
        spec.backend.path, spec.backend.last_retry = said["path"], said["last_retry"]
    elif said["path"] or said["last_retry"]:
        raise click.UsageError("--path and --last-retry are about a backend; --to source has none")
    return spec


def _planned_first(
    session: Session, spec: replays_pb.ReplaySpec, *, dry_run: bool, yes: bool, no_wait: bool, reason: str
) -> None:
    """Shows the plan, asks, does it."""
    if session.as_json and not (dry_run or yes):
        raise click.UsageError("nobody is asked with -o json: say --yes, or --dry-run for the plan")
    if dry_run or not yes:
        counted = replays_pb.ReplaySpec()
        counted.CopyFrom(spec)
        counted.dry_run = True
        plan = start_replay(session, counted, reason)
        if session.as_json:
            print_json(plan)
        else:
            show_plan(plan)
        if dry_run:
            return
        if not click.confirm("Do it?", err=True):
            raise MeshctlError("nothing was done", ExitCode.REFUSED, status="CANCELLED")
    started = start_replay(session, spec, reason)
    if no_wait:
        if session.as_json:
            print_json(started)
        else:
            show_plan(started)
        return
    follow_to_end(session, started)
