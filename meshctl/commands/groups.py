"""`meshctl groups`: the consumer groups of all clusters, and their lag over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from mesh.lag_wording import behind, outlook, sampling, totals
from mesh.rpc import topics as pb
from mesh.wording import short, word
from meshctl.moments import Since
from meshctl.output import age, as_dict, count, moment, print_json, print_table
from meshctl.session import Group, Session, pass_session

PAGE_SIZE = 1000
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class _Step(click.ParamType):
    """`--step`: 10s, 5m, 1h."""

    name = "length"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        number, unit = value[:-1], value[-1:]
        if unit not in UNITS or not number.isdigit() or not 0 < int(number) < 10**6:
            self.fail(f"{value!r} is no length of time; possible are 10s, 5m, 1h, 1d", param, ctx)
        return timedelta(seconds=int(number) * UNITS[unit])


@click.group(cls=Group)
def groups() -> None:
    """Show the consumer groups of all clusters, and how far behind they are and were.

    \b
    Examples:
      meshctl groups list                                    all groups with their lag now
      meshctl groups lag billing                             since when, how old, and when it will have caught up
      meshctl groups lag billing --since 24h --step 1h       the lag of the group over time
      meshctl groups lag billing --topic orders --above 10000 -o json
    """


@groups.command("list")
@click.option("--part", default="", metavar="TEXT", help="Only groups whose names have this part.")
@pass_session
def list_groups(session: Session, /, part: str) -> None:
    """List the groups with their state, members and lag."""
    connection = session.connect()
    request = pb.ListGroupsRequest(part=part, page_size=PAGE_SIZE)
    pages = list(connection.pages(connection.groups.ListGroups, request))
    found = [each for page in pages for each in page.groups]
    problems = list(dict.fromkeys(each for page in pages for each in page.problems))
    if session.as_json:
        print_json(as_dict(pb.ListGroupsResponse(groups=found, total=len(found), problems=problems)))
        return
    rows = (
        (
            short(each.name),
            word(pb.ConsumerGroupState, each.state),
            word(pb.ConsumerGroupType, each.type),
            each.home or "-",
            f"{each.members:,}" if each.HasField("members") else "-",
            f"{each.lag:,}" if each.HasField("lag") else "-",
        )
        for each in found
    )
    print_table(("GROUP", "STATE", "PROTOCOL", "HOME", "MEMBERS", "LAG"), rows, empty="There is no such group.")
    for problem in problems:
        click.echo(problem, err=True)


@groups.command()
@click.argument("group")
@click.option("--topic", default="", metavar="T", help="Only this topic.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition.")
@click.option("--since", "start", type=Since(), metavar="WHEN", help="10m, 2h, 7d ago, or a time; 6h by default.")
@click.option("--until", "end", type=Since(), metavar="WHEN", help="Up to this; until now otherwise.")
@click.option("--step", type=_Step(), metavar="LENGTH", help="Show the lag over time too, a line for each 10s, 5m, 1h.")
@click.option("--above", type=click.IntRange(min=0), default=0, metavar="N", help="Since when it is above N records.")
@pass_session
def lag(
    session: Session,
    /,
    group: str,
    topic: str,
    partition: int | None,
    start: datetime | None,
    end: datetime | None,
    step: timedelta | None,
    above: int,
) -> None:
    """Show the lag of a group: records, age, since when, and when the group will have caught up.

    Control samples all groups every ten seconds. It keeps a day of samples, and one in five minutes for 30 days.
    BEHIND is the time since the next record was written, by the samples of the ends; no record is read.
    """
    request = pb.QueryLagRequest(name=f"groups/{group}", topic=topic, above=above, page_size=PAGE_SIZE)
    request.end_time.FromDatetime((end or datetime.now(UTC)).astimezone(UTC))
    if partition is not None:
        request.partition = partition
    if start is not None:
        request.start_time.FromDatetime(start.astimezone(UTC))
    if step is not None:
        request.step.FromTimedelta(step)
    connection = session.connect()
    pages = list(connection.pages(connection.groups.QueryLag, request))
    found = [each for page in pages for each in page.partitions]
    for problem in sampling(pages[0].sampling):
        click.echo(problem, err=True)
    if session.as_json:
        shown = pb.QueryLagResponse(partitions=found, total=len(found), step=pages[0].step, sampling=pages[0].sampling)
        print_json(as_dict(shown))
        return
    columns = ("TOPIC", "PARTITION", "LAG", "BEHIND", f"ABOVE {above:,} SINCE", "GROWS SINCE", "OUTLOOK")
    print_table(columns, map(_row, found), empty="")
    total = sum(each.last.records for each in found)
    click.echo(f"{count(total, 'record')} behind in {count(len(found), 'partition')}.")
    if step is not None:
        course = totals(found)
        rows = (
            (datetime.fromtimestamp(each.time_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S"), f"{each.records:,}",
             behind(each.oldest) if each.oldest else "-")
            for each in course
        )  # fmt: skip
        click.echo()
        print_table(("TIME", "LAG", "BEHIND"), rows, empty="There is no sample in that time.")


def _row(of: pb.PartitionLag) -> tuple[str, ...]:
    above = f"{'before ' if of.above_for_longer else ''}{moment(of.above_since)}" if of.HasField("above_since") else "-"
    grows = f"{age(of.growing_since)}, from {of.growing_from:,}" if of.HasField("growing_since") else "-"
    return (of.topic, str(of.partition), f"{of.last.records:,}", behind(of.last), above, grows, outlook(of))
