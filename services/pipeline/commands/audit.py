"""`kafka-mesh pipeline run audit`."""

from __future__ import annotations

from dataclasses import replace
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
from services.pipeline.kafka.clusters import clusters_of
from services.pipeline.settings import PipelineSettings


def rows_of_a_batch(settings: PipelineSettings) -> int:
    """The size of a batch that keeps the rate: one batch begins in each interval."""
    return max(1, min(settings.max_batch_rows, int(settings.audit_rate * settings.trigger_interval_s)))


@click.command("audit")
@click.option("--to", "folder", default="", metavar="FOLDER", help="Of the Parquet and the checkpoints; audit_folder.")
@click.option(
    "--continuous", is_flag=True, help="Go on with what comes; without it, bring over what is there, and end."
)
@click.option("--accept-loss", is_flag=True, help="Go on where retention has taken events before they were read.")
@cluster_option
@config_option
def audit_command(folder: str, continuous: bool, accept_loss: bool, told: tuple[str, ...], config: Path | None) -> None:
    """Bring audit events of all clusters into PostgreSQL, each once, and into Parquet by day."""
    settings = settings_of(config)
    folder = folder or settings.audit_folder
    if not folder:
        raise click.UsageError("say --to FOLDER, or set KAFKA_MESH_PIPELINE_AUDIT_FOLDER")
    if settings.database_url is None:
        raise click.UsageError("set KAFKA_MESH_PIPELINE_DATABASE_URL: the PostgreSQL of control")
    require_spark()
    from services.pipeline.auditing import job
    from services.pipeline.driver_protocol.acceptances import Acceptances
    from services.pipeline.kafka.source import KafkaSource
    from services.pipeline.postgres.tables import Database

    plan = job.AuditPlan(
        database=Database(settings.database_url.get_secret_value(), settings.database_connections),
        folder=folder,
        settings=settings,
        source=replace(
            KafkaSource.of_settings(settings, topics=(), clusters={}, accept_loss=accept_loss),
            max_batch_rows=rows_of_a_batch(settings) if continuous else settings.max_batch_rows,
        ),
        clusters=lambda: clusters_of(settings, told, kept=True),
    )
    every = timedelta(seconds=settings.trigger_interval_s) if continuous else None
    stopping = stop_signal()
    with explaining():
        settings.check_folder(folder)
        plan.clusters()  # an error of the clusters is reported before Spark starts
        with session_of(settings, "audit") as session:
            told_by_serve = Acceptances.of_serve() if continuous else None
            clusters = job.run(session, plan, every=every, stopping=stopping, acceptances=told_by_serve)
    for each in clusters:
        click.echo(f"{each.name}: {each.records} records, {each.stored} new events, {each.malformed} malformed")
    if troubled := [f"{each.name}: {each.trouble}" for each in clusters if each.trouble]:
        raise click.ClickException("; ".join(troubled))
    if stopping.is_set() and not continuous:
        raise click.ClickException("stopped before the end; run it again, and it goes on from there")
