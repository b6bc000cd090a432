"""`meshctl replay copy`: records of a range go to another topic or cluster, each once. `meshctl replay resume`: one
that was cancelled, or has failed, goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from mesh.rpc import replays as replays_pb
from meshctl import replays
from meshctl.commands.record_rule_options import transform_option
from meshctl.commands.replay_starting import carry_out
from meshctl.commands.replay_watching import name_of, partitions_option
from meshctl.completions import cluster_names, replay_ids
from meshctl.failures import ExitCode, MeshctlError
from meshctl.replay_progress import ENDS
from meshctl.replays import Place, Range
from meshctl.session import Command, Session, pass_session

F = TypeVar("F", bound=Callable[..., Any])

TIMESTAMPS = {"keep": replays_pb.REPLAY_TIMESTAMPS_KEEP, "now": replays_pb.REPLAY_TIMESTAMPS_NOW}
ARCHIVE = {
    "auto": replays_pb.REPLAY_ARCHIVE_AUTO,
    "never": replays_pb.REPLAY_ARCHIVE_NEVER,
    "only": replays_pb.REPLAY_ARCHIVE_ONLY,
}
RESUMED = ("backend", "source", "topic")
"""Destinations whose group in Kafka keeps the progress."""


def _copy_options(command: F) -> F:
    """The options for the copies and their pipeline."""
    for option in (
        click.option("--reason", default="", help="Why, for the history."),
        click.option("--pipeline", default="", metavar="NAME", help="Who; any pipeline otherwise."),
        click.option("--progress-group", default="", metavar="G", help="Group on the target that keeps how far it is."),
        click.option(
            "--archive", type=click.Choice(list(ARCHIVE)), default="auto", show_default=True,
            help="For what Kafka does not hold any more; only: a restore.",
        ),
        click.option("--force", is_flag=True, help="Although the target's retention would delete the copies soon."),
        click.option("--by-key", is_flag=True, help="Partitions by key; as in the source otherwise."),
        click.option(
            "--timestamps", type=click.Choice(list(TIMESTAMPS)), default="keep", show_default=True,
            help="The originals', or when copies are written, with the original's in a header.",
        ),
        transform_option,
        click.option("--filter", "filter_", default="", metavar="EXPR", help="Only where this CEL expression is true."),
        click.option(
            "--rate", type=click.FloatRange(min=0), default=0.0, metavar="N", help="Records a second, at most."
        ),
        partitions_option,
        click.option("--wait", is_flag=True, help="Follow it to its end."),
        click.option("--dry-run", is_flag=True, help="Only count: nothing is written."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(cls=Command)
@click.option("--from", "topics", multiple=True, metavar="TOPIC", help="A topic to read; may be given several times.")
@click.option("--to", "target", default="", metavar="TOPIC", help="'{topic}' in it: the one that is read.")
@click.option(
    "--from-cluster",
    default="",
    metavar="C",
    shell_complete=cluster_names,
    help="The cluster of this topic; by default that of the rules.",
)
@click.option(
    "--to-cluster",
    default="",
    metavar="C",
    shell_complete=cluster_names,
    help="The cluster of this topic; by default that of the rules.",
)
@click.option(
    "--partition",
    "partition_numbers",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="P",
    help="Only this partition.",
)
@click.option("--since", "start", type=Place(), metavar="PLACE", help="Offset, time, or -2h; the first record.")
@click.option(
    "--until", "end", type=Place(), metavar="PLACE", help="End before this place; by default at the present end."
)
@click.option("--range", "ranges", type=Range(), multiple=True, metavar="T/P:SINCE..UNTIL", help="Instead of --from.")
@_copy_options
@pass_session
def copy(
    session: Session,
    /,
    topics: Sequence[str],
    partition_numbers: Sequence[int],
    start: replays.Where | None,
    end: replays.Where | None,
    ranges: Sequence[replays_pb.ReplayRange],
    reason: str,
    wait: bool,
    partitions: bool,
    **said: Any,
) -> None:
    """Copy records of topics to another topic, or to another cluster: each once, whatever is killed meanwhile.

    A pipeline does it. Keys, values, headers, times and order of a partition are kept. A cluster that is not named is
    the one where the mesh has the topic.

    \b
    Examples:
      meshctl replay copy --from orders --to orders-again --since -2h --wait
      meshctl replay copy --from orders --to-cluster c2 --dry-run
      meshctl replay copy --from orders --from returns --to 'old.{topic}' --rate 5000
      meshctl replay copy --range orders/0:10..25 --range orders/1 --to orders-again
      meshctl replay copy --from orders --to paid --filter "value.state == 'paid'" --transform redact:card
      meshctl replay copy --from orders --to orders-of-may --archive only --since 2026-05-01T00:00:00Z
    """
    if bool(topics) is bool(ranges):
        raise click.UsageError("say which records: --from TOPIC, or --range T/P:SINCE..UNTIL; one of the two")
    if ranges and (partition_numbers or start is not None or end is not None):
        raise click.UsageError("a --range says its partition and places itself: orders/0:10..25")
    if not said["target"] and not said["to_cluster"]:
        raise click.UsageError("say where to: --to TOPIC, --to-cluster CLUSTER, or both")
    wanted = ranges or replays.ranges_of(topics, partition_numbers, start, end)
    spec = replays_pb.ReplaySpec(ranges=wanted, rate=said["rate"], dry_run=said["dry_run"], topic=_copy(**said))
    carry_out(session, spec, reason, wait=wait, partitions=partitions)


@click.command(cls=Command)
@click.argument("replay", shell_complete=replay_ids)
@click.option("--reason", default="", help="Why, for the history.")
@click.option("--wait", is_flag=True, help="Follow it to its end.")
@partitions_option
@pass_session
def resume(session: Session, replay: str, reason: str, wait: bool, partitions: bool) -> None:
    """Go on with a replay that was cancelled, or has failed: as a new one, which begins where that one has ended.

    Its group in Kafka keeps its progress, so no record is replayed twice. A broker may delete the group after a week:
    control then refuses to resume a copy.

    \b
    Example:
      meshctl replay resume 3f9a01bc --wait
    """
    connection = session.connect()
    before = connection.call(connection.replays.GetReplay, replays_pb.GetReplayRequest(name=name_of(replay)))
    name, destination = replays.short(before.name), before.spec.WhichOneof("destination")
    if before.state not in ENDS:
        text = f"replay {name} is {replays.state(before)}, and goes on by itself: see `meshctl replay watch {name}`"
        raise MeshctlError(text, ExitCode.REFUSED, status="OPEN")
    if before.state == replays_pb.REPLAY_STATE_DONE or destination not in RESUMED or before.spec.dry_run:
        why = "is done" if before.state == replays_pb.REPLAY_STATE_DONE else "keeps no place where it could go on"
        raise MeshctlError(f"replay {name} {why}; start a new one", ExitCode.REFUSED, status="NOTHING_LEFT")
    carry_out(session, before.spec, reason or f"goes on with {before.name}", wait=wait, partitions=partitions)


def _copy(
    target: str, from_cluster: str, to_cluster: str, filter_: str, transforms: Sequence[Any], timestamps: str,
    by_key: bool, force: bool, archive: str, pipeline: str, progress_group: str, **_: Any,
) -> replays_pb.ReplayToTopic:  # fmt: skip
    return replays_pb.ReplayToTopic(
        topic=target,
        cluster=to_cluster,
        source_cluster=from_cluster,
        pipeline=pipeline,
        group=progress_group,
        timestamps=TIMESTAMPS[timestamps],
        partitioning=replays_pb.REPLAY_PARTITIONING_BY_KEY if by_key else replays_pb.REPLAY_PARTITIONING_SAME,
        force=force,
        filter=filter_,
        transforms=transforms,
        archive=ARCHIVE[archive],
    )
