"""What the commands share: settings, the clusters, a session for as long as the job runs, signals, and one sentence for
what went wrong.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import click
import structlog

from mesh.settings import load
from mesh.telemetry import configure_logging
from services.pipeline.clusters import Cluster, read_clusters, set_clusters, told_clusters
from services.pipeline.session import SessionError, check_java, first_line, our_sentence, start_session
from services.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTRA = ("confluent_kafka", "pandas", "pyarrow", "pyspark")
CONTROL_FOUND: ContextVar[str] = ContextVar("control that the caller has found", default="")
"""Where it is, for who sets no address: beside the gateway of a mesh that runs on this machine."""
Command = TypeVar("Command", bound=Callable[..., object])

log = structlog.get_logger(__name__)


def config_option(command: Command) -> Command:
    """`--config`, the file with settings."""
    return click.option(
        "--config", type=click.Path(path_type=Path, exists=True), help="YAML file with settings."
    )(command)  # fmt: skip


def cluster_option(command: Command) -> Command:
    """`--cluster`, which goes before what settings and control tell."""
    return click.option(
        "--cluster",
        "told",
        multiple=True,
        metavar="NAME=HOST:PORT,...",
        help="A cluster, instead of those that control knows; again for each. The first is the home cluster.",
    )(command)


def settings_of(config: Path | None) -> PipelineSettings:
    """The settings; from here on the log speaks as they say."""
    settings = load(PipelineSettings, ["--config", str(config)] if config else [])
    if "control_addresses" not in settings.model_fields_set and (found := CONTROL_FOUND.get()):
        settings = settings.model_copy(update={"control_addresses": (found,)})
    configure_logging("pipeline", level=settings.log_level)
    return settings


def clusters_of(settings: PipelineSettings, told: Sequence[str] = (), *, kept: bool = False) -> dict[str, Cluster]:
    """The clusters by name: of the command line, else of the settings, else of control. ClustersError says why not.
    `kept`: those that control has told before will do while it is away.
    """
    if told:
        return told_clusters(told, settings.client_properties)
    if settings.clusters:
        return set_clusters(
            {
                cluster: {name: value.get_secret_value() for name, value in properties.items()}
                for cluster, properties in settings.clusters.items()
            }
        )
    return read_clusters(settings.control_addresses, settings.request_timeout_s, settings.state_dir if kept else None)


def require_spark() -> None:
    """Ends the command, with what to install, where Spark can't run."""
    if missing := [name for name in EXTRA if find_spec(name) is None]:
        raise click.ClickException(
            f"{', '.join(missing)} not installed: install the extra `pipeline` (in a checkout: make env PIPELINE=1)"
        )
    try:
        check_java()
    except SessionError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def session_of(settings: PipelineSettings, job: str) -> Iterator[SparkSession]:
    """Spark, for as long as the job runs."""
    session = start_session(settings, job)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def explaining() -> Iterator[None]:
    """Ends the command with one sentence; what we have no sentence for is also logged with its traces."""
    try:
        yield
    except Exception as error:
        sentence = our_sentence(error)
        if sentence is None:
            log.exception("job failed")
        raise click.ClickException(sentence or first_line(error)) from error


def stop_signal() -> threading.Event:
    """Set by SIGTERM and Ctrl-C."""
    stopping, asked = threading.Event(), SimpleQueue[int]()

    def wait() -> None:
        asked.get()
        stopping.set()

    # A handler runs in the thread that waits for the event, also while that holds the event's lock: it must not set it.
    threading.Thread(target=wait, name="stop signal", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: asked.put(number))
    return stopping
