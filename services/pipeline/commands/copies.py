"""Copies by hand: the common part of `replay` and `restore`, which carries out a copy and prints its progress."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import replays
from services.pipeline.commands.foreground import (
    cluster_option,
    config_option,
    explaining,
    session_at_need,
    stop_signal,
)
from services.pipeline.driver_protocol.orders import Order, Report
from services.pipeline.kafka.clusters import Cluster, clusters_of, properties_of
from services.pipeline.settings import PipelineSettings

WHEN = click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"])
OPTIONS = (
    click.option("--since", type=WHEN, help="From the first record of this time (UTC) on."),
    click.option("--until", type=WHEN, help="Before the first record of this time (UTC)."),
    click.option("--by-key", is_flag=True, help="Partitions follow from keys, and are not those of the originals."),
    click.option("--retime", is_flag=True, help="Copies are of now; the original's time is in a header."),
    click.option("--rate", type=click.FloatRange(min=0), default=0.0, metavar="N", help="Records a second, at most."),
    click.option("--group", metavar="NAME", help="Keeps how far it is. The usual one is told by the other options."),
    click.option("--force", is_flag=True, help="Although the target would delete the copies soon."),
    click.option("--dry-run", is_flag=True, help="Only count."),
    cluster_option,
    config_option,
)


@dataclass(frozen=True, slots=True)
class HowToCopy:
    """The values of OPTIONS."""

    since: datetime | None
    until: datetime | None
    by_key: bool
    retime: bool
    rate: float
    group: str | None
    force: bool
    dry_run: bool
    told: tuple[str, ...]
    """Clusters of the command line."""
    config: Path | None

    def range_of(self, topic: str) -> replays.ReplayRange:
        return replays.ReplayRange(topic=topic, start_time=_timestamp(self.since), end_time=_timestamp(self.until))

    def clusters(self, settings: PipelineSettings) -> dict[str, Cluster]:
        """The clusters by name. ClustersError."""
        return clusters_of(settings, self.told)


def copy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds OPTIONS to the command, which gets their values as `how`."""

    @functools.wraps(command)
    def with_how(**said: Any) -> None:
        how = HowToCopy(**{name: said.pop(name) for name in HowToCopy.__slots__})
        command(how=how, **said)

    return functools.reduce(lambda done, option: option(done), reversed(OPTIONS), with_how)


def copy_by_hand(
    topics: Sequence[str],
    copy: replays.ReplayToTopic,
    how: HowToCopy,
    clusters: Mapping[str, Cluster],
    settings: PipelineSettings,
    archive: str,
    kind: str,
) -> None:
    """Copies as `copy` and `how` say; exits with 1 unless the copy is done. The same call again resumes the copy."""
    if how.by_key:
        copy.partitioning = replays.REPLAY_PARTITIONING_BY_KEY
    if how.retime:
        copy.timestamps = replays.REPLAY_TIMESTAMPS_NOW
    ranges = [how.range_of(topic) for topic in topics]
    copy.group = how.group or _group(kind, archive if _is_restore(copy) else "", copy, ranges)
    copy.force = how.force
    spec = replays.ReplaySpec(ranges=ranges, topic=copy, rate=how.rate, dry_run=how.dry_run)
    click.echo(f"group {copy.group} on {copy.cluster} keeps how far this is", err=True)
    with explaining():
        properties = properties_of(clusters, (copy.source_cluster, copy.cluster))
        order = Order(replays.Replay(name="replays/by-hand", spec=spec), properties, archive)
        ended = carry_out(order, settings, Teller())
    if ended != replays.REPLAY_STATE_DONE:
        raise click.exceptions.Exit(1)


def _is_restore(copy: replays.ReplayToTopic) -> bool:
    return copy.archive == replays.REPLAY_ARCHIVE_ONLY


def _group(kind: str, archive: str, copy: replays.ReplayToTopic, ranges: Sequence[replays.ReplayRange]) -> str:
    """The group's name: the same for the same records and target; the archive mode and `force` don't change it."""
    same = replays.ReplayToTopic()
    same.CopyFrom(copy)
    same.ClearField("archive")
    asked = replays.ReplaySpec(ranges=ranges, topic=same).SerializeToString(deterministic=True)
    return f"mesh-{kind}-by-hand-{hashlib.sha256(archive.rstrip('/').encode() + asked).hexdigest()[:12]}"


def _timestamp(when: datetime | None) -> Timestamp | None:
    if when is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(when.replace(tzinfo=UTC))
    return timestamp


class Teller:
    """Prints progress to stderr, and the result to stdout."""

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
    """Copies the records; Spark starts only if there is something to copy."""
    from services.pipeline.archives.folder import FolderArchive
    from services.pipeline.copying import job

    reads_archive = order.archive and order.replay.spec.topic.archive != replays.REPLAY_ARCHIVE_NEVER
    with session_at_need(settings, "replay") as session:
        return job.run(
            session,
            order,
            FolderArchive(order.archive, settings.store_options) if reads_archive else None,
            report,
            stop_signal(),
            timeout_s=settings.request_timeout_s,
            stall_timeout_s=settings.stall_timeout_s,
        )
