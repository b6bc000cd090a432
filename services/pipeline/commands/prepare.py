"""`kafka-mesh pipeline prepare`."""

from __future__ import annotations

import click

from services.pipeline.commands.foreground import explaining, require_spark
from services.pipeline.settings import PipelineSettings
from services.pipeline.spark import class_data_sharing
from services.pipeline.spark.session import find_java, start_session


@click.command("prepare")
def prepare_command() -> None:
    """Make what lets jobs start faster: an archive of Spark's classes for the Java that is here, 150 MB. Once."""
    require_spark()
    with explaining():
        archive = class_data_sharing.archive_of(find_java())
        if not archive.exists():
            options = class_data_sharing.options_to_make(archive)
            session = start_session(PipelineSettings(master="local[2]", driver_java_options=options), "prepare")
            class_data_sharing.finish(session, archive)
    click.echo(f"{archive}, {archive.stat().st_size >> 20} MB")
