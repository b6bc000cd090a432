"""`kafka-mesh pipeline run archive`."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import click

from services.pipeline.commands.foreground import (
    config_option,
    explaining,
    gateway_properties,
    require_spark,
    session_of,
    settings_of,
    stop_signal,
)
from services.pipeline.kafka.clusters import clusters_at_control, places_of_topic


@click.command("archive")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--to", "folder", required=True, metavar="FOLDER", help="A path, or a URL that Hadoop knows.")
@click.option("--continuous", is_flag=True, help="Go on with what comes; without it, archive what is there, and end.")
@click.option("--compact", is_flag=True, help="Then make few large files of finished days; --continuous always does.")
@click.option("--accept-loss", is_flag=True, help="Go on where retention has taken records before they were archived.")
@click.option("--bootstrap", metavar="HOST:PORT,...", help="The gateway, or any Kafka.")
@config_option
@click.pass_obj
def archive_command(
    gateway: str | None,
    topics: tuple[str, ...],
    folder: str,
    continuous: bool,
    compact: bool,
    accept_loss: bool,
    bootstrap: str | None,
    config: Path | None,
) -> None:
    """Write TOPIC... to Parquet in FOLDER, by day, each record exactly once; again and again into the same FOLDER."""
    settings = settings_of(config)
    require_spark()
    from services.pipeline.archives import job
    from services.pipeline.archives.compaction import CompactionRules
    from services.pipeline.archives.former_clusters import FormerClusters
    from services.pipeline.driver_protocol.acceptances import Acceptances
    from services.pipeline.kafka.source import GATEWAY, KafkaSource

    source = KafkaSource.of_settings(
        settings,
        topics=tuple(sorted(set(topics))),
        clusters={GATEWAY: gateway_properties(settings, bootstrap, gateway)},
        accept_loss=accept_loss,
        skip_absent=continuous,
    )
    every = timedelta(seconds=settings.archive_interval_s) if continuous else None
    rules = CompactionRules(timedelta(seconds=settings.compact_after_s), settings.archive_file_mb << 20)
    former_clusters = FormerClusters(partial(clusters_at_control, settings), partial(places_of_topic, settings))
    with explaining():
        settings.check_folder(folder)
        source.logs()  # an unreadable topic is reported before Spark starts
        with session_of(settings, "archive") as session:
            written = job.run(
                session,
                source,
                folder,
                every=every,
                stopping=stop_signal(),
                rules=rules if compact or continuous else None,
                acceptances=Acceptances.of_serve() if continuous else None,
                former_clusters=former_clusters,
            )
    records = "record" if written.records == 1 else "records"
    click.echo(
        f"{written.records} {records} of {', '.join(source.topics)} to {folder} "
        f"in {written.batches} {'batch' if written.batches == 1 else 'batches'}, {written.seconds:.1f} s"
    )
    if compact or continuous:
        click.echo(f"{written.days_compacted} {'day' if written.days_compacted == 1 else 'days'} compacted")
    if written.apart and not continuous:
        raise click.ClickException("set apart: " + "; ".join(written.apart.values()))
    if written.is_cut_short:
        raise click.ClickException("stopped before the end; run it again, and it goes on from there")
