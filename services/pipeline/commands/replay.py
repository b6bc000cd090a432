"""`kafka-mesh pipeline run replay`: a copy by order of serve, or of whoever types it."""

from __future__ import annotations

import functools
import hashlib
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import replays
from services.pipeline.commands.foreground import (
    cluster_option,
    clusters_of,
    config_option,
    explaining,
    require_spark,
    session_of,
    settings_of,
    stop_signal,
)
from services.pipeline.orders import Order, report_to_line
from services.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from services.pipeline.copying.replaying import Report

STDIN = "-"
WHEN = click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"])


@click.command("replay")
@click.option("--order", type=click.Choice([STDIN]), help="The order is a line on stdin; reports are lines on stdout.")
@click.option("--from", "source", metavar="TOPIC", help="What is read, under its name on its cluster.")
@click.option("--to", "target", metavar="TOPIC", help="Where to; the same name if it is left out.")
@click.option("--source-cluster", metavar="NAME", help="Cluster that is read.")
@click.option("--target-cluster", metavar="NAME", help="Cluster that is written; the same one if it is left out.")
@click.option("--since", type=WHEN, help="From the first record of this time (UTC) on.")
@click.option("--until", type=WHEN, help="Before the first record of this time (UTC).")
@click.option("--filter", "condition", metavar="CEL", default="", help="Only records for which this is true.")
@click.option(
    "--by-key", is_flag=True, help="Partitions follow from keys; without it, they are those of the originals."
)
@click.option("--retime", is_flag=True, help="Copies are of now; the original's time is in a header.")
@click.option("--rate", type=click.FloatRange(min=0), default=0.0, metavar="N", help="Records a second, at most.")
@click.option("--group", metavar="NAME", help="Keeps how far it is. The usual one is told by the other options.")
@click.option("--force", is_flag=True, help="Although the target would delete the copies soon.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@cluster_option
@config_option
def replay_command(
    order: str | None,
    source: str | None,
    target: str | None,
    source_cluster: str | None,
    target_cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    condition: str,
    by_key: bool,
    retime: bool,
    rate: float,
    group: str | None,
    force: bool,
    dry_run: bool,
    told: tuple[str, ...],
    config: Path | None,
) -> None:
    """Copy records to another topic or cluster, each exactly once, however often this is killed and run again.

    The same options again go on, up to where the source ended the first time; another --group begins anew. With --order
    it is `kafka-mesh pipeline serve` that orders it, and replays of control have more options than these.
    """
    settings = settings_of(config)
    require_spark()
    if order:
        with explaining():
            carry_out(Order.from_line(sys.stdin.readline()), settings, _as_line)
        return
    if not source or not source_cluster:
        raise click.UsageError("say --from TOPIC and --source-cluster NAME, or --order -")
    copy = replays.ReplayToTopic(
        topic=target or source,
        cluster=target_cluster or source_cluster,
        source_cluster=source_cluster,
        filter=condition,
        force=force,
        partitioning=replays.REPLAY_PARTITIONING_BY_KEY if by_key else replays.REPLAY_PARTITIONING_SAME,
        timestamps=replays.REPLAY_TIMESTAMPS_NOW if retime else replays.REPLAY_TIMESTAMPS_KEEP,
        archive=replays.REPLAY_ARCHIVE_AUTO if settings.archive_folder else replays.REPLAY_ARCHIVE_NEVER,
    )
    ranges = [replays.ReplayRange(topic=source, start_time=timestamp_of(since), end_time=timestamp_of(until))]
    asked = hashlib.sha256(copy.SerializeToString() + ranges[0].SerializeToString()).hexdigest()[:12]
    copy.group = group or f"mesh-replay-by-hand-{asked}"
    replay = replays.Replay(
        name="replays/by-hand", spec=replays.ReplaySpec(ranges=ranges, topic=copy, rate=rate, dry_run=dry_run)
    )
    click.echo(f"group {copy.group} on {copy.cluster} keeps how far this is", err=True)
    with explaining():
        clusters = {name: each.properties for name, each in clusters_of(settings, told).items()}
        ended = carry_out(Order(replay, clusters, settings.archive_folder), settings, Teller())
    if ended != replays.REPLAY_STATE_DONE:
        raise click.exceptions.Exit(1)


def timestamp_of(when: datetime | None) -> Timestamp | None:
    if when is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(when.replace(tzinfo=UTC))
    return timestamp


def _as_line(report: replays.ReportReplayRequest) -> None:
    click.echo(report_to_line(report))


class Teller:
    """Progress for people, on stderr; the end on stdout."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], replays.ReplayPartition] = {}

    def __call__(self, report: replays.ReportReplayRequest) -> None:
        self._partitions |= {(each.topic, each.partition): each for each in report.partitions}
        if report.state != replays.REPLAY_STATE_RUNNING:
            state = replays.ReplayState.Name(report.state).removeprefix("REPLAY_STATE_").lower()
            click.echo(f"{state}: {report.description}")
            return
        whole = sum(each.end_offset - each.start_offset for each in self._partitions.values())
        done = sum(each.position - each.start_offset for each in self._partitions.values())
        records = sum(each.records for each in self._partitions.values())
        text = report.description or f"{done} of {whole} offsets, {records} records copied"
        click.echo(text, err=True)


def carry_out(order: Order, settings: PipelineSettings, report: Report) -> replays.ReplayState.ValueType:
    """Copies; Spark is started when there is something to copy."""
    from services.pipeline.archives.folder import FolderArchive
    from services.pipeline.jobs import replay

    reads_archive = order.archive and order.replay.spec.topic.archive != replays.REPLAY_ARCHIVE_NEVER
    with ExitStack() as until_end:

        @functools.cache
        def session() -> SparkSession:
            return until_end.enter_context(session_of(settings, "replay"))

        return replay.run(
            session,
            order,
            FolderArchive(order.archive, settings.store_options) if reads_archive else None,
            report,
            stop_signal(),
            timeout_s=settings.request_timeout_s,
            stall_timeout_s=settings.stall_timeout_s,
        )
