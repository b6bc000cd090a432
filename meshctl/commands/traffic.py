"""`meshctl traffic`: how much flows, of whom, where and how fast, from the tables that a pipeline fills."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from mesh.rpc import traffic as traffic_pb
from meshctl.moments import Since
from meshctl.output import moment, print_json, print_table
from meshctl.session import Group, Session, pass_session
from meshctl.traffic import DIMENSIONS, Dimensions, cells, freshness, growth

MEASURES = ("bytes", "records", "calls", "errors")
STEPS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
FIGURES = ("BYTES", "RECORDS", "CALLS", "ERRORS", "P50 MS", "P90 MS", "P99 MS", "MAX MS")

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group)
def traffic() -> None:
    """Show how much flows: who has the most, and how it goes over time.

    Gateways and sidecars count; a pipeline (`kafka-mesh pipeline serve`) fills the tables that answer, by minute, hour
    and day. How far they are is said on standard error when it is not as it should be.

    \b
    Examples:
      meshctl traffic top                               the topics with the most bytes in the last hour
      meshctl traffic top --by client,topic --measure records --since 24h
      meshctl traffic show --topic orders --since 7d    by the hour, with its growth and percentiles
      meshctl traffic show --rule rules/orders --step minute -o json
    """


def _who_and_when(command: F) -> F:
    """The options for time and filter; given to the command as `start`, `end` and the fields of a TrafficFilter."""
    for option in (
        click.option("--until", "end", type=Since(), metavar="WHEN", help="Before this; until now otherwise."),
        click.option("--since", "start", type=Since(), metavar="WHEN", help="10m, 2h, 7d ago, or a time in RFC 3339."),
        click.option("--reporter", default="", metavar="NAME", help="Only what this gateway or sidecar has counted."),
        click.option("--api", default="", metavar="NAME", help="Only calls of this API: Produce, Fetch, ..."),
        click.option("--cluster", default="", metavar="NAME", help="Only of this cluster."),
        click.option("--rule", default="", metavar="RULE", help="Only what this rule routed."),
        click.option("--topic", default="", metavar="T", help="Only of this topic."),
        click.option("--principal", default="", metavar="NAME", help="Only of who has logged in as this."),
        click.option("--client", default="", metavar="ID", help="Only of this client.id."),
    ):
        command = option(command)
    return command


@traffic.command()
@click.option(
    "--by",
    type=Dimensions(),
    default="topic",
    show_default=True,
    metavar="WHAT,...",
    help=f"Some of {', '.join(DIMENSIONS)}.",
)
@click.option("--measure", type=click.Choice(MEASURES), default="bytes", show_default=True, help="The most of what.")
@click.option("-n", "--count", "number", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@_who_and_when
@pass_session
def top(
    session: Session,
    /,
    by: list[str],
    measure: str,
    number: int,
    start: datetime | None,
    end: datetime | None,
    **who: str,
) -> None:
    """Show who, or what, has the most traffic: in the last hour, or as --since and --until say."""
    request = traffic_pb.TopTalkersRequest(
        by=[traffic_pb.TrafficDimension.Value(f"TRAFFIC_DIMENSION_{each.upper()}") for each in by],
        measure=traffic_pb.TrafficMeasure.Value(f"TRAFFIC_MEASURE_{measure.upper()}"),
        filter=_filter(who),
        limit=number,
    )
    _set_times(request, start, end)
    connection = session.connect()
    answer = connection.call(connection.traffic.TopTalkers, request)
    _tell(answer.freshness)
    if session.as_json:
        print_json(answer)
        return
    rows: list[tuple[object, ...]] = [
        (*(getattr(each.who, name) or "-" for name in by), *cells(each.figures)) for each in answer.talkers
    ]
    if rows:
        rows.append(("all", *[""] * (len(by) - 1), *cells(answer.total)))
    print_table((*(name.upper() for name in by), *FIGURES), rows, empty="Nothing was counted in that time.")


@traffic.command()
@click.option("--step", type=click.Choice(list(STEPS)), help="A line for each; what gives at most 200 otherwise.")
@_who_and_when
@pass_session
def show(session: Session, /, step: str | None, start: datetime | None, end: datetime | None, **who: str) -> None:
    """Show traffic over time, its growth and its percentiles: of the last day, or as --since and --until say."""
    request = traffic_pb.QueryTrafficRequest(filter=_filter(who))
    _set_times(request, start, end)
    if step is not None:
        request.step.FromTimedelta(STEPS[step])
    connection = session.connect()
    answer = connection.call(connection.traffic.QueryTraffic, request)
    _tell(answer.freshness)
    if session.as_json:
        print_json(answer)
        return
    rows = [(moment(each.start_time), *cells(each.figures)) for each in answer.points]
    if rows:
        rows.append(("all", *cells(answer.total)))
    print_table(("FROM", *FIGURES), rows, empty="Nothing was counted in that time.")
    if answer.HasField("growth"):
        click.echo(growth(answer.growth))


def _filter(who: dict[str, str]) -> traffic_pb.TrafficFilter:
    said = {name: value for name, value in who.items() if value}
    if "rule" in said and not said["rule"].startswith("rules/"):
        said["rule"] = f"rules/{said['rule']}"
    return traffic_pb.TrafficFilter(**said)


def _set_times(
    request: traffic_pb.TopTalkersRequest | traffic_pb.QueryTrafficRequest,
    start: datetime | None,
    end: datetime | None,
) -> None:
    if start is not None:
        request.start_time.FromDatetime(start.astimezone(UTC))
    if end is not None:
        request.end_time.FromDatetime(end.astimezone(UTC))


def _tell(said: traffic_pb.TrafficFreshness) -> None:
    if sentence := freshness(said, datetime.now(UTC)):
        click.echo(sentence, err=True)
