"""Common parts of the commands: settings, clusters, Spark session, signals, and errors in one sentence."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import click
import structlog

from mesh.settings import load
from mesh.telemetry import configure_logging
from services.pipeline.driver_protocol.orders import Order, Report, report_to_line
from services.pipeline.settings import PipelineSettings
from services.pipeline.spark.session import SessionError, check_java, first_line, our_sentence, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_GATEWAY = "127.0.0.1:19092"
STDIN = "-"
EXTRA = ("confluent_kafka", "pandas", "pyarrow", "pyspark")
Command = TypeVar("Command", bound=Callable[..., object])

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FoundControl:
    """The control that the caller found, beside the gateway of a mesh on this machine."""

    address: str
    tls_folder: Path | None
    """The certificate of the pipeline there."""


CONTROL_FOUND: ContextVar[FoundControl | None] = ContextVar("control that the caller has found", default=None)
"""Used if no address of control is set."""


def config_option(command: Command) -> Command:
    """Adds `--config`, the file with settings."""
    return click.option(
        "--config", type=click.Path(path_type=Path, exists=True), help="YAML file with settings."
    )(command)  # fmt: skip


def order_option(command: Command) -> Command:
    """Adds `--order`, by which `serve` starts the job."""
    return click.option(
        "--order", type=click.Choice([STDIN]), help="The order is a line on stdin; reports are lines on stdout."
    )(command)


def cluster_option(command: Command) -> Command:
    """Adds `--cluster`, which has precedence over the settings and over control."""
    return click.option(
        "--cluster",
        "told",
        multiple=True,
        metavar="NAME=HOST:PORT,...",
        help="A cluster, instead of those that control knows; again for each. The first is the home cluster.",
    )(command)


def settings_of(config: Path | None) -> PipelineSettings:
    """Loads the settings, and configures the log by them."""
    settings = load(PipelineSettings, ["--config", str(config)] if config else [])
    if "control_addresses" not in settings.model_fields_set and (found := CONTROL_FOUND.get()):
        folder = settings.rpc_tls_folder or found.tls_folder
        settings = settings.model_copy(update={"control_addresses": (found.address,), "rpc_tls_folder": folder})
    configure_logging("pipeline", level=settings.log_level)
    return settings


def gateway_properties(settings: PipelineSettings, bootstrap: str | None, found: str | None) -> dict[str, str]:
    """librdkafka's properties for the gateway of `--bootstrap`, else of the settings, else the one that was found."""
    servers = bootstrap or ",".join(settings.bootstrap_servers) or found or DEFAULT_GATEWAY
    return settings.client_properties | {"bootstrap.servers": servers}


def require_spark() -> None:
    """Ends the command with the missing package or Java if Spark can't run."""
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
    """A Spark session for the time of the job."""
    session = start_session(settings, job)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def session_at_need(settings: PipelineSettings, job: str) -> Iterator[Callable[[], SparkSession]]:
    """Starts the Spark session of the job at the first call."""
    with ExitStack() as until_end:
        yield functools.cache(lambda: until_end.enter_context(session_of(settings, job)))


@contextmanager
def explaining() -> Iterator[None]:
    """Ends the command with one sentence; an error that is not the pipeline's own is also logged with its traceback."""
    try:
        yield
    except Exception as error:
        sentence = our_sentence(error)
        if sentence is None:
            log.exception("a job failed by a fault of the pipeline")
        raise click.ClickException(sentence or first_line(error)) from error


def carry_out_order(settings: PipelineSettings, job: Callable[[Order, PipelineSettings, Report], object]) -> None:
    """Runs the job for the order on stdin; reports are lines on stdout."""
    with explaining():
        job(Order.from_line(sys.stdin.readline()), settings, lambda report: click.echo(report_to_line(report)))


def stop_signal() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set."""
    stopping, asked = threading.Event(), SimpleQueue[int]()

    def wait() -> None:
        asked.get()
        stopping.set()

    # A signal handler runs in the thread that waits for the event, even while this thread holds the event's lock. So
    # the handler must not set the event itself.
    threading.Thread(target=wait, name="stop signal", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: asked.put(number))
    return stopping
