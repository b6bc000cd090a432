"""`meshctl topic fork`: a topic that begins with another one's records, and has its own from an offset on."""

from __future__ import annotations

import uuid
from datetime import datetime

import click

from mesh.rpc import topics as pb
from meshctl.completions import cluster_names
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.moments import Since
from meshctl.output import count, moment, print_json, print_table
from meshctl.session import Command, Session, pass_session

LATEST = "latest"
COLUMNS = ("FORK", "OF", "PAST ON", "OWN RECORDS ON", "PAST BYTES/S", "MADE")
PARTITIONS = ("PARTITION", "OWN RECORDS FROM")


class End(click.ParamType):
    """`--at`: the end of the past."""

    name = "place"

    def convert(
        self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int | datetime:
        if isinstance(value, str) and value.isdecimal():
            return int(value)
        return value if value == LATEST else Since().convert(value, param, ctx)


@click.command(cls=Command)
@click.argument("topic", metavar="TOPIC")
@click.option("--as", "fork_name", metavar="NAME", help="The name of the fork.")
@click.option(
    "--at",
    type=End(),
    metavar="PLACE",
    help="The end of the past: latest, an offset, a time, or 2h (ago).",
)
@click.option("--to", "target", metavar="CLUSTER", shell_complete=cluster_names, help="For the fork's own records.")
@click.option(
    "--quota",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Bytes of the past that each gateway reads in a second.",
)
@click.option("--delete", is_flag=True, help="TOPIC is a fork: delete its own records, its log and its rule.")
@click.option("--dry-run", is_flag=True, help="With --delete: show what goes and what stays.")
@click.option("--yes", is_flag=True, help="With --delete: do not ask.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def fork(
    session: Session,
    topic: str,
    fork_name: str | None,
    at: str | int | datetime | None,
    target: str | None,
    quota: int | None,
    delete: bool,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> None:
    """Make a topic that begins with the records of TOPIC, and has its own from an offset on. Nothing is copied.

    Clients of the fork read the past where it is. They can't write, change or delete it. TOPIC does not see the fork.

    \b
    Examples:
      meshctl topic fork apples --as apples-staging --at latest --to c2
      meshctl topic fork apples --as apples-repair --at 2026-11-30T02:00:00Z --to c2 --quota 10000000
      meshctl topic fork apples-repair --delete
    """
    if delete:
        if fork_name or at is not None or target or quota:
            raise click.UsageError("--delete goes with --dry-run, --yes and --reason alone")
        _delete(session, topic, dry_run=dry_run, yes=yes, reason=reason)
        return
    if dry_run or yes:
        raise click.UsageError("--dry-run and --yes go with --delete")
    if not fork_name or at is None or not target:
        raise click.UsageError("name the fork (--as), the end of its past (--at) and its cluster (--to)")
    request = pb.ForkTopicRequest(
        source_topic=topic, topic=fork_name, target_cluster=target, past_bytes_per_second=quota or 0,
        reason=reason, request_id=str(uuid.uuid4()),
    )  # fmt: skip
    if isinstance(at, datetime):
        request.time.FromDatetime(at)
    elif isinstance(at, int):
        request.offset = at
    else:
        request.latest = True
    connection = session.connect()
    found = connection.call(connection.topics.ForkTopic, request)
    if session.as_json:
        print_json(found)
        return
    click.echo(f"topic {fork_name} is a fork of {topic}; its own records are on {found.cluster}")
    print_table(PARTITIONS, ((each.partition, each.offset) for each in found.partitions), empty="")


def _delete(session: Session, topic: str, *, dry_run: bool, yes: bool, reason: str) -> None:
    """Shows the plan, asks, does it."""
    if session.as_json and not (dry_run or yes):
        raise click.UsageError("nobody is asked with -o json: say --yes, or --dry-run for the plan")
    connection = session.connect()
    if dry_run or not yes:
        if not any(each.name == f"topics/{topic}" for each in _all(connection, "").forks):
            text = f"topic {topic!r} is no fork; `meshctl topic forks` shows all"
            raise MeshctlError(text, ExitCode.NOT_FOUND, status="NOT_FOUND")
        request = pb.GetTopicPartsRequest(name=f"topics/{topic}")
        found = connection.call(connection.topics.GetTopicParts, request)
        if dry_run and session.as_json:
            print_json(found)
            return
        for part in found.parts:
            records = sum(each.end - each.start for each in part.partitions)
            goes = "stays" if part.past_of else "is deleted"
            where = f"{part.past_of or part.upstream_topic} on {part.cluster}"
            click.echo(f"- {goes}: topic {where}, {count(records, 'record')} of the fork", err=True)
        if dry_run:
            return
        if not click.confirm(f"Delete the fork {topic}?", err=True):
            raise MeshctlError("nothing was done", ExitCode.REFUSED, status="CANCELLED")
    wanted = pb.DeleteTopicForkRequest(name=f"topics/{topic}", reason=reason, request_id=str(uuid.uuid4()))
    deleted = connection.call(connection.topics.DeleteTopicFork, wanted)
    if session.as_json:
        print_json(deleted)
        return
    click.echo(f"the fork {topic} of {deleted.source_topic} is deleted; the records of {deleted.source_topic} stay")


@click.command(cls=Command)
@click.option("--of", "source", default="", metavar="TOPIC", help="Only forks of this topic.")
@pass_session
def forks(session: Session, source: str) -> None:
    """Show the forks of topics.

    \b
    Example:
      meshctl topic forks --of apples
    """
    found = _all(session.connect(), source)
    if session.as_json:
        print_json(found)
        return
    print_table(COLUMNS, map(_row, found.forks), empty="no topic has a fork")


def _all(connection: Connection, source: str) -> pb.ListTopicForksResponse:
    found = pb.ListTopicForksResponse()
    while True:
        request = pb.ListTopicForksRequest(page_size=1000, source_topic=source, page_token=found.next_page_token)
        page = connection.call(connection.topics.ListTopicForks, request)
        found.forks.extend(page.forks)
        found.next_page_token = page.next_page_token
        if not page.next_page_token:
            return found


def _row(of: pb.TopicFork) -> tuple[object, ...]:
    past = ", ".join(of.past_clusters) or "expired"
    bound = of.past_bytes_per_second or "no bound"
    return of.name.removeprefix("topics/"), of.source_topic, past, of.cluster, bound, moment(of.create_time)
