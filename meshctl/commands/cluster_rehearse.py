"""`meshctl cluster rehearse`: a candidate cluster gets a share of the produces of some topics as well."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

import click

from mesh.rehearsals.figures import added, longest_ms, quantile_ms
from mesh.rehearsals.words import verdict
from mesh.rpc import rehearsals as rehearsals_pb
from mesh.wording import word
from meshctl.completions import cluster_names
from meshctl.moments import moment_of
from meshctl.output import moment, print_json, print_table
from meshctl.session import Command, Session, pass_session

MEGABYTE = 1_000_000
WHOLE = 10_000
START_SECONDS = 40.0
"""The least time-out of a start: control asks all clusters, and makes the topics."""
COLUMNS = ("TOPIC", "CLUSTER", "PRODUCES", "STORED", "ERRORS", "P50 MS", "P95 MS", "P99 MS", "MAX MS", "MB", "DROPPED")


class Share(click.ParamType):
    """`--share`: parts in ten thousand, from a text with a percent sign."""

    name = "share"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            share = float(value.removesuffix("%")) * WHOLE / 100
        except ValueError:
            share = 0.0
        if not (value.endswith("%") and 1 <= share <= WHOLE and share == round(share)):
            self.fail(f"{value!r} is no share: write it like 10%, from 0.01% to 100%", param, ctx)
        return round(share)


class Duration(click.ParamType):
    """`--for`: seconds, from a text like 1h30m."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        now = datetime.now(UTC)
        try:
            return round((moment_of(f"+{value}", now) - now).total_seconds())
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time: write it like 30m, 1h or 2d", param, ctx)


@click.command("rehearse", cls=Command)
@click.argument("cluster", metavar="CLUSTER", shell_complete=cluster_names)
@click.option("--topics", multiple=True, metavar="NAME|GLOB", help="Topics, or a pattern of * and ?; again for more.")
@click.option("--share", type=Share(), metavar="PERCENT", help="The share of their batches that CLUSTER gets; 10%.")
@click.option("--for", "seconds", type=Duration(), metavar="TIME", help="It ends by itself after so long; 1h.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MB/S",
    help="Most megabytes a second of each gateway's process; 20.",
)
@click.option("--dry-run", is_flag=True, help="Show what would begin, and change nothing.")
@click.option("--show", is_flag=True, help="Show the figures of both clusters: also without any option.")
@click.option("--end", is_flag=True, help="End it: CLUSTER gets no more batches, and its topics are deleted.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def rehearse(
    session: Session,
    cluster: str,
    topics: tuple[str, ...],
    share: int | None,
    seconds: int | None,
    rate: float | None,
    dry_run: bool,
    show: bool,
    end: bool,
    reason: str,
) -> None:
    """Try CLUSTER with the load of live topics, before they move there.

    Gateways write a share of the batches to CLUSTER as well, after the client has its answer. Clients feel nothing. The
    records go to topics of the mesh, which control deletes at the end.

    \b
    Examples:
      meshctl cluster rehearse c2 --topics orders --share 10%
      meshctl cluster rehearse c2
      meshctl cluster rehearse c2 --end
    """
    begins = bool(topics or share or seconds or rate or dry_run)
    if begins + show + end > 1:
        raise click.UsageError("begin with --topics, or look with --show, or end with --end: one of these")
    if begins and not topics:
        raise click.UsageError("name the topics with --topics")
    connection = session.connect()
    if begins:
        found = connection.call(
            connection.rehearsals.StartRehearsal,
            rehearsals_pb.StartRehearsalRequest(
                cluster_name=cluster,
                topics=topics,
                share=share or WHOLE // 10,
                seconds=seconds or 0,
                bytes_per_second=round((rate or 0) * MEGABYTE),
                validate_only=dry_run,
                request_id="" if dry_run else str(uuid.uuid4()),
                reason=reason,
            ),
            at_least=START_SECONDS,
        )
    elif end:
        asked = rehearsals_pb.EndRehearsalRequest(cluster_name=cluster, request_id=str(uuid.uuid4()), reason=reason)
        found = connection.call(connection.rehearsals.EndRehearsal, asked)
    else:
        found = connection.call(
            connection.rehearsals.GetRehearsal, rehearsals_pb.GetRehearsalRequest(cluster_name=cluster)
        )
    if session.as_json:
        print_json(found)
        return
    _show(found)
    if dry_run:
        click.echo("checked only, nothing was changed")


def _show(found: rehearsals_pb.Rehearsal) -> None:
    topics = ", ".join(each.topic for each in found.topics)
    state = word(rehearsals_pb.RehearsalState, found.state)
    click.echo(
        f"{found.cluster_name} gets {found.share / 100:g} % of the batches of {topics}: {state}, until "
        f"{moment(found.end_time)}, {found.bytes_per_second / MEGABYTE:g} MB/s of each process at most"
    )
    if found.problem:
        click.echo(found.problem)
    if found.figures:
        print_table(COLUMNS, map(_row, added(found.figures, by_topic=True)), empty="")
    if found.state != rehearsals_pb.REHEARSAL_STATE_PREPARING:
        click.echo(verdict(found))


def _row(of: rehearsals_pb.RehearsalFigures) -> tuple[object, ...]:
    times = [f"{quantile_ms(of.latencies, part, longest_ms(of)):.3g}" for part in (0.5, 0.95, 0.99)]
    return (
        of.topic, of.cluster_name, of.produces, of.stored, _counts(of.errors), *times, f"{longest_ms(of):.3g}",
        f"{of.bytes / MEGABYTE:.1f}", _counts(of.dropped),
    )  # fmt: skip


def _counts(of: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(of.items())) or "-"
