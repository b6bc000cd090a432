"""`kafka-mesh pipeline run restore`: a replay that reads the archive alone."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path

import click

from mesh.rpc import replays
from services.pipeline.commands.foreground import (
    cluster_option,
    clusters_of,
    config_option,
    explaining,
    require_spark,
    settings_of,
)
from services.pipeline.commands.replay import WHEN, Teller, carry_out, timestamp_of
from services.pipeline.orders import Order


@click.command("restore")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--from", "folder", metavar="FOLDER", help="The archive; by default that of the settings.")
@click.option("--to", "target", metavar="TOPIC", help="Where to; {topic} in it is the archived name.")
@click.option("--target-cluster", metavar="NAME", help="Cluster that is written; needed where there are several.")
@click.option("--since", type=WHEN, help="From the first record of this time (UTC) on.")
@click.option("--until", type=WHEN, help="Before the first record of this time (UTC).")
@click.option("--by-key", is_flag=True, help="Partitions follow from keys, and are not those of the originals.")
@click.option("--retime", is_flag=True, help="Copies are of now; the original's time is in a header.")
@click.option("--rate", type=click.FloatRange(min=0), default=0.0, metavar="N", help="Records a second, at most.")
@click.option("--group", metavar="NAME", help="Keeps how far it is. The usual one is told by the other options.")
@click.option("--force", is_flag=True, help="Although the target would delete the records soon.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@cluster_option
@config_option
def restore_command(
    topics: tuple[str, ...],
    folder: str | None,
    target: str | None,
    target_cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    by_key: bool,
    retime: bool,
    rate: float,
    group: str | None,
    force: bool,
    dry_run: bool,
    told: tuple[str, ...],
    config: Path | None,
) -> None:
    """Write archived records of TOPIC... into a topic, each exactly once, however often this is killed and run again.

    The same options again go on, up to where the archive ended the first time; another --group begins anew.
    """
    settings = settings_of(config)
    require_spark()
    archive = folder or settings.archive_folder
    if not archive:
        raise click.UsageError("say --from FOLDER, or set KAFKA_MESH_PIPELINE_ARCHIVE_FOLDER")
    with explaining():
        clusters = clusters_of(settings, told)
    if target_cluster is None and len(clusters) != 1:
        raise click.UsageError(f"say --target-cluster: one of {', '.join(clusters) or 'none that is known'}")
    cluster = target_cluster or next(iter(clusters))
    copy = replays.ReplayToTopic(
        topic=target or "",
        cluster=cluster,
        source_cluster=cluster,  # the archive knows the mesh's topics, and not where they were
        force=force,
        partitioning=replays.REPLAY_PARTITIONING_BY_KEY if by_key else replays.REPLAY_PARTITIONING_SAME,
        timestamps=replays.REPLAY_TIMESTAMPS_NOW if retime else replays.REPLAY_TIMESTAMPS_KEEP,
        archive=replays.REPLAY_ARCHIVE_ONLY,
    )
    ranges = [
        replays.ReplayRange(topic=topic, start_time=timestamp_of(since), end_time=timestamp_of(until))
        for topic in sorted(set(topics))
    ]
    spec = replays.ReplaySpec(ranges=ranges, topic=copy)
    asked = hashlib.sha256(archive.encode() + spec.SerializeToString(deterministic=True)).hexdigest()[:12]
    copy.group = group or f"mesh-restore-by-hand-{asked}"
    spec = replays.ReplaySpec(ranges=ranges, topic=copy, rate=rate, dry_run=dry_run)
    click.echo(f"group {copy.group} on {cluster} keeps how far this is", err=True)
    order = Order(
        replays.Replay(name="replays/by-hand", spec=spec),
        {name: each.properties for name, each in clusters.items()},
        archive,
    )
    with explaining():
        ended = carry_out(order, settings, Teller())
    if ended != replays.REPLAY_STATE_DONE:
        raise click.exceptions.Exit(1)
