"""`kafka-mesh pipeline run traffic`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from services.pipeline.commands.foreground import (
    cluster_option,
    config_option,
    explaining,
    require_spark,
    session_of,
    settings_of,
    stop_signal,
)
from services.pipeline.kafka.clusters import clusters_of, home_of


@click.command("traffic")
@click.option("--continuous", is_flag=True, help="Go on with what comes; without it, roll up what is there, and end.")
@click.option("--accept-loss", is_flag=True, help="Go on where reports were lost before they were counted.")
@cluster_option
@config_option
def traffic_command(continuous: bool, accept_loss: bool, told: tuple[str, ...], config: Path | None) -> None:
    """Roll up what gateways and sidecars have counted by minute, hour and day, into PostgreSQL, each report once."""
    settings = settings_of(config)
    if settings.database_url is None:
        raise click.UsageError("set KAFKA_MESH_PIPELINE_DATABASE_URL: the PostgreSQL of control")
    require_spark()
    from services.pipeline.driver_protocol.acceptances import Acceptances
    from services.pipeline.kafka.source import GATEWAY, KafkaSource
    from services.pipeline.postgres.tables import Database
    from services.pipeline.traffic import job
    from services.pipeline.traffic.progress import Keeping

    database = Database(settings.database_url.get_secret_value())
    keeping = Keeping(
        settings.traffic_minutes_days,
        settings.traffic_hours_days,
        settings.traffic_days_days,
        settings.receipts_days,
    )
    every = timedelta(seconds=settings.trigger_interval_s) if continuous else None
    with explaining():
        source = KafkaSource.of_settings(
            settings,
            topics=(settings.traffic_topic,),
            clusters={GATEWAY: home_of(clusters_of(settings, told, kept=True)).properties},
            accept_loss=accept_loss,
            skip_absent=True,  # the topic exists once something has been counted
        )
        source.logs()  # an unreadable topic is reported before Spark starts
        with session_of(settings, "traffic") as session:
            done = job.run(
                session,
                source,
                database,
                keeping=keeping,
                every=every,
                stopping=stop_signal(),
                acceptances=Acceptances.of_serve() if continuous else None,
            )
    click.echo(
        f"{done.counters} counters of {done.reports} reports in {done.batches} "
        f"{'batch' if done.batches == 1 else 'batches'}, {done.seconds:.1f} s; "
        f"{done.late} late, {done.repeated} repeated, {done.refused} refused"
    )
    if done.is_cut_short:
        raise click.ClickException("stopped before the end; run it again, and it goes on from there")
