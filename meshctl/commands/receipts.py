"""`meshctl receipts`: who was sent which records of a topic, and when, from the table that a pipeline fills."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from mesh.rpc import traffic as pb
from meshctl.moments import Since
from meshctl.output import as_dict, count, moment, print_json, print_table
from meshctl.session import Group, Session, pass_session
from meshctl.traffic import freshness

PAGE_SIZE = 1000
SHOWN_CLIENTS, SHOWN_RANGES = 3, 4
"""The most that the table shows of a reader; the JSON has up to 100."""
STATES = {
    pb.RECEIPT_STATE_SENT: "sent",
    pb.RECEIPT_STATE_PERHAPS: "perhaps",
    pb.RECEIPT_STATE_NOT_SENT: "not sent",
}


@click.group(cls=Group)
def receipts() -> None:
    """Show who was sent which records.

    Gateways report what they send; a pipeline (`kafka-mesh pipeline serve`) keeps it. Records that somebody reads past
    the gateways have no receipts.
    """


@receipts.command()
@click.argument("topic")
@click.option("--offset", type=click.IntRange(min=0), help="The readers that were sent this record, and the others.")
@click.option("--partition", type=click.IntRange(min=0), help="Only of this partition.")
@click.option("--principal", default="", metavar="NAME", help="Only who has logged in as this: User:alice.")
@click.option("--group", default="", metavar="G", help="Only this consumer group or share group.")
@click.option("--since", type=Since(), metavar="WHEN", help="Not before: 10m, 2h, 7d ago, or a time in RFC 3339.")
@pass_session
def topic(
    session: Session,
    /,
    topic: str,
    offset: int | None,
    partition: int | None,
    principal: str,
    group: str,
    since: datetime | None,
) -> None:
    """Show the readers of a topic: of one record with --offset, else the offsets that each was sent.

    "sent" means that a gateway gave the record to the reader's connection. "perhaps" means that the reader jumped so
    much that only a wider range was kept. "not sent" means that no receipt has the record.

    \b
    Examples:
      meshctl receipts topic apples --offset 1000 --partition 0   who had this record, when, and who has not had it
      meshctl receipts topic apples                               which offsets each reader was sent
      meshctl receipts topic apples --principal User:eve -o json
    """
    request = pb.ListReceiptsRequest(
        topic=topic, partition=partition, offset=offset, principal=principal, group=group, page_size=PAGE_SIZE
    )
    if since is not None:
        request.start_time.FromDatetime(since.astimezone(UTC))
    connection = session.connect()
    pages = list(connection.pages(connection.traffic.ListReceipts, request))
    found = [each for page in pages for each in page.receipts]
    last = pages[-1]
    if session.as_json:
        print_json(
            as_dict(pb.ListReceiptsResponse(receipts=found, freshness=last.freshness, incomplete=last.incomplete))
        )
    elif offset is None:
        columns = ("PARTITION", "PRINCIPAL", "GROUP", "CLIENT IDS", "OFFSETS", "PERHAPS", "FIRST", "LAST", "FROM")
        print_table(columns, map(_ranges_row, found), empty="No receipt is like that.")
    else:
        columns = ("PARTITION", "PRINCIPAL", "GROUP", "CLIENT IDS", "RECORD", "FIRST", "LAST", "LAST READ", "FROM")
        print_table(columns, map(_record_row, found), empty="Nobody has a receipt of that topic.")
        if found:
            click.echo(_summary(found))
    for sentence in (freshness(last.freshness, datetime.now(UTC)), last.incomplete):
        if sentence:
            click.echo(sentence, err=True)


def _record_row(of: pb.Receipt) -> tuple[str, ...]:
    return (*_who(of), STATES[of.state], *_times(of), _time(of, "last_read_time"), ", ".join(of.clusters) or "-")


def _ranges_row(of: pb.Receipt) -> tuple[str, ...]:
    shown = [_range(each) for each in of.ranges[:SHOWN_RANGES]]
    more = len(of.ranges) + of.more_ranges - len(shown)
    offsets = ", ".join(shown) + (f" and {count(more, 'range')} more" if more else "")
    perhaps = _range(of.perhaps) if of.HasField("perhaps") else "-"
    return (*_who(of), offsets or "-", perhaps, *_times(of), ", ".join(of.clusters) or "-")


def _who(of: pb.Receipt) -> tuple[str, ...]:
    clients = ", ".join(each or '""' for each in of.clients[:SHOWN_CLIENTS])
    more = len(of.clients) - SHOWN_CLIENTS
    partition = f"{of.partition} (of an earlier topic)" if of.earlier_topic else str(of.partition)
    return (partition, of.principal, of.group or "-", f"{clients} and {more} more" if more > 0 else clients or "-")


def _times(of: pb.Receipt) -> tuple[str, str]:
    return _time(of, "first_time"), _time(of, "last_time")


def _time(of: pb.Receipt, field: str) -> str:
    return moment(getattr(of, field)) if of.HasField(field) else "-"  # type: ignore[arg-type]  # a field of a Receipt


def _range(of: pb.OffsetRange) -> str:
    return str(of.first_offset) if of.first_offset == of.last_offset else f"{of.first_offset}-{of.last_offset}"


def _summary(found: Sequence[pb.Receipt]) -> str:
    """Whether every reader was sent the record; partitions count by themselves, and earlier topics do not."""
    current = [each for each in found if not each.earlier_topic]
    numbers = {state: sum(each.state == state for each in current) for state in STATES}
    said = [f"{numbers[state]} {word}" for state, word in STATES.items() if numbers[state]]
    return f"{count(len(current), 'reader')}: {', '.join(said)}." if current else "No reader of the topic of now."
