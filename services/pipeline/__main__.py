"""`kafka-mesh pipeline run JOB`: one Spark job in the foreground."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import click
import structlog

from mesh.settings import load
from mesh.telemetry import configure_logging
from services.pipeline.session import SessionError, check_java, first_line, our_sentence, start_session
from services.pipeline.settings import PipelineSettings

DEFAULT_GATEWAY = "127.0.0.1:19092"
EXTRA = ("confluent_kafka", "pandas", "pyarrow", "pyspark")

log = structlog.get_logger(__name__)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """What is done with records in bulk: Spark jobs."""


@pipeline.group("run")
def run_job() -> None:
    """Run a job in the foreground; what it has done stands in its checkpoint."""


@run_job.command("archive")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--to", "folder", required=True, metavar="FOLDER", help="A path, or a URL that Hadoop knows.")
@click.option("--continuous", is_flag=True, help="Go on with what comes; without it, archive what is there, and end.")
@click.option("--accept-loss", is_flag=True, help="Go on where retention has taken records before they were archived.")
@click.option("--bootstrap", metavar="HOST:PORT,...", help="The gateway, or any Kafka.")
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="YAML file with settings.")
@click.pass_obj
def archive_command(
    gateway: str | None,
    topics: tuple[str, ...],
    folder: str,
    continuous: bool,
    accept_loss: bool,
    bootstrap: str | None,
    config: Path | None,
) -> None:
    """Write TOPIC... to Parquet in FOLDER, by day, each record exactly once; again and again into the same FOLDER."""
    settings = load(PipelineSettings, ["--config", str(config)] if config else [])
    configure_logging("pipeline", level=settings.log_level)
    _require_spark()
    from services.pipeline.jobs import archive
    from services.pipeline.kafka_source import KafkaSource, read_logs

    source = KafkaSource(
        topics=tuple(sorted(set(topics))),
        properties={name: value.get_secret_value() for name, value in settings.kafka_properties.items()}
        | {"bootstrap.servers": bootstrap or ",".join(settings.bootstrap_servers) or gateway or DEFAULT_GATEWAY},
        max_batch_rows=settings.max_batch_rows,
        stall_timeout_s=settings.stall_timeout_s,
        request_timeout_s=settings.request_timeout_s,
        accept_loss=accept_loss,
    )
    every = timedelta(seconds=settings.trigger_interval_s) if continuous else None
    with _explaining():
        read_logs(source)  # what can't be read is told before Spark has started
        session = start_session(settings, "archive")
        try:
            written = archive.run(session, source, folder, every=every, stopping=_stop_signal())
        finally:
            session.stop()
    click.echo(
        f"{written.records} records of {', '.join(source.topics)} to {folder} "
        f"in {written.batches} {'batch' if written.batches == 1 else 'batches'}, {written.seconds:.1f} s"
    )
    if written.is_cut_short:
        raise click.ClickException("stopped before the end; run it again, and it goes on from there")


def _require_spark() -> None:
    if missing := [name for name in EXTRA if find_spec(name) is None]:
        raise click.ClickException(
            f"{', '.join(missing)} not installed: install the extra `pipeline` (in a checkout: make env PIPELINE=1)"
        )
    try:
        check_java()
    except SessionError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def _explaining() -> Iterator[None]:
    """Ends the command with one sentence; what we have no sentence for is also logged with its traces."""
    try:
        yield
    except Exception as error:
        sentence = our_sentence(error)
        if sentence is None:
            log.exception("job failed")
        raise click.ClickException(sentence or first_line(error)) from error


def _stop_signal() -> threading.Event:
    """Set by SIGTERM and Ctrl-C."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    return stopping


def main(arguments: list[str] | None = None, *, gateway: str | None = None) -> None:
    """`gateway` is where the caller found the mesh, for jobs that are told nothing else."""
    pipeline.main(args=arguments, prog_name="kafka-mesh pipeline", obj=gateway)


if __name__ == "__main__":
    main()
