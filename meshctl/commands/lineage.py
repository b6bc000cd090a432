"""`meshctl lineage`: who produces what, who reads it, and what readers produce from it, as control has seen it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import lineage as pb
from meshctl.connection import PAGE_SIZE, Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.lineage import gathering, node_text, rate_text
from meshctl.moments import Since
from meshctl.openlineage.endpoint import EndpointError, EndpointTarget
from meshctl.openlineage.events import Event, Following, jobs_of, whole
from meshctl.output import as_dict, count, moment, print_json, print_table
from meshctl.reopening import reopened
from meshctl.session import Group, Session, pass_session
from meshctl.siem.exporting import insistently
from meshctl.siem.targets import FileTarget, Lines, Target, TargetGoneError

F = TypeVar("F", bound=Callable[..., Any])
STDOUT: Final = "-"
NAMESPACE: Final = "kafka-mesh"
KINDS = {
    pb.LINEAGE_EDGE_KIND_PRODUCES: "produces",
    pb.LINEAGE_EDGE_KIND_CONSUMES: "is read by",
    pb.LINEAGE_EDGE_KIND_MEMBER: "has member",
    pb.LINEAGE_EDGE_KIND_COPIES: "is copied to",
    pb.LINEAGE_EDGE_KIND_DELIVERS: "delivers to",
}


def _ways(command: F) -> F:
    """The options of a question about one node."""
    for option in reversed(
        (
            click.option("--upstream", is_flag=True, help="Only where its records come from."),
            click.option("--downstream", is_flag=True, help="Only where its records go to."),
            click.option("--depth", type=click.IntRange(1, 20), default=4, show_default=True, metavar="N",
                         help="Steps; from a topic through a group and its application to the next topic are three."),
            click.option("--most", type=click.IntRange(1, 5000), default=1000, show_default=True, metavar="N",
                         help="At most so many edges, the nearest first."),
            click.option("--openlineage", is_flag=True, help="As events of OpenLineage 2-0-2, one a line."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@click.group(cls=Group)
def lineage() -> None:
    """Show where records come from and where they go.

    Control gathers lineage from the traffic of clients, from record rules that run, and from sidecars. An application
    is a principal and a client.id, without what differs between its instances. Lineage of a client that is away stays.
    """


@lineage.command()
@click.argument("topic")
@_ways
@pass_session
def topic(session: Session, /, topic: str, **how: Any) -> None:
    """Show the lineage of a topic.

    \b
    Examples:
      meshctl lineage topic orders
      meshctl lineage topic orders --downstream --depth 8
      meshctl lineage topic orders -o json
    """
    _show(session, pb.QueryLineageRequest(topic=topic), **how)


@lineage.command()
@click.argument("group")
@_ways
@pass_session
def group(session: Session, /, group: str, **how: Any) -> None:
    """Show the lineage of a consumer group or share group."""
    _show(session, pb.QueryLineageRequest(group=group), **how)


@lineage.command()
@click.argument("application")
@_ways
@pass_session
def application(session: Session, /, application: str, **how: Any) -> None:
    """Show the lineage of an application: User:alice/orders."""
    _show(session, pb.QueryLineageRequest(application=application), **how)


def _show(
    session: Session, request: pb.QueryLineageRequest, *, upstream: bool, downstream: bool, depth: int, most: int,
    openlineage: bool,
) -> None:  # fmt: skip
    directions = {
        (True, False): pb.LINEAGE_DIRECTION_UPSTREAM,
        (False, True): pb.LINEAGE_DIRECTION_DOWNSTREAM,
    }
    request.direction = directions.get((upstream, downstream), pb.LINEAGE_DIRECTION_BOTH)
    request.depth, request.most_edges = depth, most
    connection = session.connect()
    answer = connection.call(connection.lineage.QueryLineage, request)
    if openlineage:
        for event in whole(jobs_of(answer.edges), NAMESPACE):
            print_json(event, one_line=True)
    elif session.as_json:
        print_json(as_dict(answer))
    else:
        print_table(
            ("FROM", "", "TO", "BY", "A SECOND", "FIRST SEEN", "LAST SEEN"), map(_row, answer.edges), empty="No edge."
        )
    for sentence in _notes(answer):
        click.echo(sentence, err=True)


def _row(of: pb.LineageEdge) -> tuple[str, ...]:
    last = "now" if of.present else moment(of.last_time)
    ends = node_text(of.source), KINDS[of.kind], node_text(of.target)
    return *ends, of.rule or "-", rate_text(of), moment(of.first_time), last


def _notes(answer: pb.QueryLineageResponse) -> Iterator[str]:
    if answer.truncated:
        yield f"There are more than {count(len(answer.edges), 'edge')}: raise --most, or lower --depth."
    if answer.hidden:
        yield f"{count(answer.hidden, 'topic')} beyond your grants, and all behind, are not shown."
    yield from gathering(answer.gathering, datetime.now(UTC))


@lineage.command()
@click.option("--to", "place", default=STDOUT, show_default=True, metavar="WHERE",
              help="- (standard output), a file, or an endpoint of OpenLineage: https://HOST:PORT.")  # fmt: skip
@click.option("--namespace", default=NAMESPACE, show_default=True, metavar="NAME", help="Namespace of the jobs.")
@click.option("--since", type=Since(), metavar="WHEN", help="Only what was seen since: 10m, 2h, 7d ago, or a time.")
@click.option("--follow", is_flag=True, help="Go on with what changes, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(1, 3600), default=30.0, show_default=True, metavar="SECONDS",
              help="With --follow: the time between two looks.")  # fmt: skip
@pass_session
def export(
    session: Session, place: str, namespace: str, since: datetime | None, follow: bool, every: float
) -> None:  # fmt: skip
    """Export the lineage of the mesh as OpenLineage events.

    Each application and each record rule is a job, each topic a dataset. A token for the endpoint is in
    OPENLINEAGE_API_KEY. An event may come twice; it is the same event then.

    \b
    Examples:
      meshctl lineage export --to lineage.jsonl
      meshctl lineage export --follow --to https://marquez.example.com
    """
    connection = session.connect()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    sent = 0
    try:
        target = _target(place)
        try:
            for events in _looks(connection, namespace, since, every if follow else None):
                for event in events:
                    insistently(partial(target.send, event), follow)
                    sent += 1
                insistently(target.flush, follow)
        finally:
            target.close()
    except KeyboardInterrupt:
        return
    except (OSError, EndpointError, TargetGoneError) as error:
        raise MeshctlError(f"{place}: {error}", ExitCode.REFUSED) from error
    finally:
        signal.signal(signal.SIGTERM, before)
    click.echo(f"{count(sent, 'event')} exported to {place}", err=True)


def _looks(
    connection: Connection, namespace: str, since: datetime | None, every: float | None
) -> Iterator[Iterator[Event]]:
    """The events of each look; `every`: None for one look."""
    if every is None:
        yield whole(jobs_of(_edges(connection, since)), namespace)
        return
    following = Following(namespace, _now)

    def asked() -> Iterator[Sequence[pb.LineageEdge] | None]:
        while True:
            yield _edges(connection, since)
            time.sleep(every)

    for edges in reopened(asked, again=True):
        if edges is not None:
            yield following.events(jobs_of(edges))


def _edges(connection: Connection, since: datetime | None) -> list[pb.LineageEdge]:
    request = pb.ListLineageRequest(page_size=PAGE_SIZE)
    if since is not None:
        request.since_time.FromDatetime(since.astimezone(UTC))
    pages = list(connection.pages(connection.lineage.ListLineage, request))
    for sentence in gathering(pages[-1].gathering, datetime.now(UTC)):
        click.echo(sentence, err=True)
    return [each for page in pages for each in page.edges]


def _target(place: str) -> Target:
    if place == STDOUT:
        return Lines()
    try:
        return EndpointTarget(place) if "://" in place else FileTarget(Path(place))
    except EndpointError as error:
        raise MeshctlError(f"--to: {error}", ExitCode.BAD_REQUEST) from error


def _now() -> Timestamp:
    made = Timestamp()
    made.GetCurrentTime()
    return made
