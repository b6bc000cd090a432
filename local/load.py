"""`kafka-mesh load`: records at a bounded rate through the gateway, with live figures and a summary.

Where `backyards kafka load` only sent, this also receives (--consumers), measures from when a record was due, and tells
what is missing or duplicated: let it run, change a rule meanwhile, and read the last lines.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.live import Live
from rich.table import Table

from local.clients import quiet
from local.gateway_address import EXIT_FAILED, ClientError, bootstrap_option, no_answer, unrouted
from local.latency import Histogram, Percentiles
from local.load_run import MAX_RECORDS, MIN_SIZE, Plan, Run, RunError, Snapshot
from meshctl.endpoints import Endpoint

DEFAULT_TOPICS = ("apples", "bananas")  # routed by the example rules of `kafka-mesh up`
ADMIN_SECONDS = 15.0
REFRESH_SECONDS = 1.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Summary:
    """A finished run; the fields are those of `-o json`."""

    bootstrap: str
    topics: tuple[str, ...]
    target_rate: float
    elapsed_s: float
    record_bytes: int
    sent: int
    delivered: int
    failed: int
    records_per_s: float
    mib_per_s: float
    produce_latency_ms: Percentiles | None
    received: int | None
    end_to_end_latency_ms: Percentiles | None
    missing: int | None
    duplicated: int | None
    read_again: int | None
    errors: dict[str, int]

    @property
    def good(self) -> bool:
        return not (self.failed or self.missing or self.duplicated)


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@bootstrap_option
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Records a second, all producers together.",
)
@click.option(
    "--duration",
    type=click.FloatRange(min=1, max=3600),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="When to stop.",
)
@click.option(
    "--size",
    type=click.IntRange(min=MIN_SIZE, max=900_000),
    default=512,
    show_default=True,
    metavar="BYTES",
    help="Bytes of a record's value.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Partitions of topics that are created for the run.",
)
@click.option(
    "--producers",
    type=click.IntRange(min=1, max=64),
    default=1,
    show_default=True,
    help="Producers, each with connections of its own.",
)
@click.option(
    "--consumers",
    type=click.IntRange(min=0, max=64),
    default=1,
    show_default=True,
    help="Consumers of one group; 0: only produce.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="The summary."
)
def load(
    topics: tuple[str, ...],
    bootstrap: Endpoint,
    rate: float,
    duration: float,
    size: int,
    partitions: int,
    producers: int,
    consumers: int,
    output: str,
) -> None:
    """Send records to TOPIC... (default: apples bananas) at --rate for --duration, and receive them again.

    Latencies count from when a record was due, not from when it could be sent. Topics that are missing are created
    through the mesh. Ctrl-C ends the run early. Exit code 1 when a record failed, is missing or was stored twice;
    3 when nothing answers.
    """
    if rate * duration > MAX_RECORDS:
        raise click.UsageError(
            f"--rate times --duration is more than {MAX_RECORDS:,} records; choose less of one of them"
        )
    plan = Plan(bootstrap, tuple(dict.fromkeys(topics or DEFAULT_TOPICS)), rate, duration, size, producers, consumers)
    _ensure_topics(plan, partitions)
    run = Run(plan)
    try:
        run.prepare()
        run.start()
        try:
            _show_live(run)
        except KeyboardInterrupt:
            run.stopping.set()
            run.ends = min(run.ends, time.monotonic())
            for sender in run.senders:
                sender.join()
        run.drain()
        summary = _summarize(run)
    except RunError as error:
        raise ClientError(str(error), EXIT_FAILED) from error
    finally:
        run.close()
    _print_summary(summary, output)
    if not summary.good:
        raise ClientError(_complaint(summary), EXIT_FAILED)


def _ensure_topics(plan: Plan, partitions: int) -> None:
    admin = AdminClient(quiet(plan.endpoint, "kafka-mesh-load-admin"))
    try:
        missing = [topic for topic in plan.topics if topic not in admin.list_topics(timeout=ADMIN_SECONDS).topics]
    except KafkaException as error:
        raise no_answer(plan.endpoint, error.args[0].str()) from error
    new = [NewTopic(topic, num_partitions=partitions, replication_factor=-1) for topic in missing]
    for topic, created in (admin.create_topics(new, request_timeout=ADMIN_SECONDS) if new else {}).items():
        try:
            created.result(ADMIN_SECONDS)
        except KafkaException as error:
            raise ClientError(
                f"{topic} can't be created: {error.args[0].str()}; {unrouted(topic)}", EXIT_FAILED
            ) from error


def _show_live(run: Run) -> None:
    """Figures of each second, until the senders are done: a table on a terminal, else lines; on stderr."""
    console = Console(stderr=True, highlight=False)
    before = run.snapshot()
    with Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else _Silent() as live:
        while run.sending():
            run.stopping.wait(REFRESH_SECONDS)
            if not run.sending():
                return
            now = run.snapshot()
            if isinstance(live, Live):
                live.update(_live_table(run.plan, before, now), refresh=True)
            else:
                click.echo(_live_line(before, now), err=True)
            before = now


class _Silent:
    """Replaces `Live` where the output is no terminal."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _rates(before: Snapshot, now: Snapshot) -> tuple[float, float, Histogram, Histogram]:
    seconds = max(now.elapsed - before.elapsed, 0.001)
    produced, consumed = now.produced.since(before.produced), now.consumed.since(before.consumed)
    return produced.count / seconds, consumed.count / seconds, produced, consumed


def _milliseconds(of: Percentiles | None) -> tuple[str, str, str, str]:
    if of is None:
        return "-", "-", "-", "-"
    return f"{of.p50:.1f}", f"{of.p95:.1f}", f"{of.p99:.1f}", f"{of.max:.1f}"


def _live_table(plan: Plan, before: Snapshot, now: Snapshot) -> Table:
    produced_rate, consumed_rate, produced, consumed = _rates(before, now)
    title = f"{now.elapsed:.0f} of {plan.duration:g} s, {plan.rate:g} records/s asked, to {', '.join(plan.topics)}"
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in ("", "RECORDS", "NOW/S", "MIB/S", "P50 MS", "P95 MS", "P99 MS", "MAX MS", "FAILED"):
        table.add_column(column, justify="right")
    sides = [("delivered", now.produced.count, produced_rate, produced, str(now.failed))]
    if plan.consumers:
        sides.append(("received", now.consumed.count, consumed_rate, consumed, ""))
    for name, total, rate, recent, failed in sides:
        figures = _milliseconds(recent.percentiles())
        table.add_row(name, f"{total:,}", f"{rate:,.0f}", f"{rate * plan.size / MIB:.2f}", *figures, failed)
    return table


def _live_line(before: Snapshot, now: Snapshot) -> str:
    produced_rate, consumed_rate, produced, consumed = _rates(before, now)
    line = f"{now.elapsed:5.1f} s  " + _side("delivered", now.produced.count, produced_rate, produced)
    if now.consumed.count:
        line += "  " + _side("received", now.consumed.count, consumed_rate, consumed)
    return line + (f"  failed {now.failed}" if now.failed else "")


def _side(name: str, total: int, rate: float, recent: Histogram) -> str:
    p50, _p95, p99, highest = _milliseconds(recent.percentiles())
    return f"{name} {total} ({rate:.0f}/s, p50 {p50} p99 {p99} max {highest} ms)"


def _summarize(run: Run) -> Summary:
    last, plan = run.snapshot(), run.plan
    elapsed = max(last.elapsed, 0.001)
    delivered, receives = last.produced.count, plan.consumers > 0
    return Summary(
        bootstrap=plan.endpoint.address,
        topics=plan.topics,
        target_rate=plan.rate,
        elapsed_s=round(elapsed, 3),
        record_bytes=plan.size,
        sent=last.sent,
        delivered=delivered,
        failed=last.failed,
        records_per_s=round(delivered / elapsed, 1),
        mib_per_s=round(delivered * plan.size / elapsed / MIB, 3),
        produce_latency_ms=last.produced.percentiles(),
        received=last.consumed.count if receives else None,
        end_to_end_latency_ms=last.consumed.percentiles() if receives else None,
        missing=run.missing() if receives else None,
        duplicated=run.duplicated() if receives else None,
        read_again=run.read_again() if receives else None,
        errors=dict(run.errors()),
    )


def _print_summary(summary: Summary, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(asdict(summary), indent=2, ensure_ascii=False))
        return
    rows: list[tuple[str, Any]] = [
        ("topics", ", ".join(summary.topics)),
        ("delivered", f"{summary.delivered:,} of {summary.sent:,} records in {summary.elapsed_s:.1f} s"),
        ("throughput", f"{summary.records_per_s:,.0f} records/s, {summary.mib_per_s:.2f} MiB/s"),
        ("produce latency", _sentence(summary.produce_latency_ms)),
    ]
    if summary.received is not None:
        found = f"{summary.missing} missing, {summary.duplicated} duplicated, {summary.read_again} read again"
        rows.append(("received", f"{summary.received:,} records: {found}"))
        rows.append(("end to end", _sentence(summary.end_to_end_latency_ms)))
    rows += [(f"error, {times} times", error) for error, times in summary.errors.items()]
    width = max(len(name) for name, _value in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")
    if summary.records_per_s < summary.target_rate * 0.95 and not math.isclose(summary.sent, 0):
        click.echo(f"note: {summary.target_rate:g} records/s were asked; this machine or the mesh did not reach that")


def _sentence(of: Percentiles | None) -> str:
    if of is None:
        return "-"
    return f"p50 {of.p50:.1f}  p95 {of.p95:.1f}  p99 {of.p99:.1f}  p99.9 {of.p999:.1f}  max {of.max:.1f} ms"


def _complaint(summary: Summary) -> str:
    parts = [("failed", summary.failed), ("missing", summary.missing or 0), ("duplicated", summary.duplicated or 0)]
    return "records " + ", ".join(f"{number} {what}" for what, number in parts if number)
