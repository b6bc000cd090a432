"""Receipts: who was sent a record, and which readers were not, from the table that a pipeline fills."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import traffic
from mesh.wording import word
from services.console import words
from services.console.asking import Ask, search
from services.console.parts import Cells, Field, Notice, Page, Part, Table, Tone

PAGE_SIZE = 100
COLUMNS = ("Partition", "Principal", "Group", "Client ids", "Record", "First", "Last", "Last read", "From")
LEAD = "Gateways report the offsets that they send. No gateway can know whether a client received them."


async def listing(ask: Ask) -> Page:
    """The readers of one record."""
    fields = (
        Field("topic", "Topic", value=ask.said("topic"), required=True),
        Field("offset", "Offset", value=ask.said("offset"), required=True),
        Field("partition", "Partition", value=ask.said("partition"), help="Empty: all."),
        Field("principal", "Principal", value=ask.said("principal"), help="Empty: all. For example User:alice"),
    )
    form = search("/receipts", "Search", *fields)
    if not ask.said("topic"):
        return Page("Who was sent a record", [form], lead=LEAD)
    request = traffic.ListReceiptsRequest(
        topic=ask.said("topic"),
        offset=ask.number("offset"),
        partition=ask.number("partition") if ask.said("partition") else None,
        principal=ask.said("principal"),
        page_size=PAGE_SIZE,
        page_token=ask.page_token,
    )
    answer: traffic.ListReceiptsResponse = await ask.caller.call(ask.caller.stubs.traffic.ListReceipts, request)
    fresh = answer.freshness
    note = f"Complete until {words.moment(fresh.complete_until)}." if fresh.HasField("complete_until") else ""
    more = ask.more(answer.next_page_token)
    rows = [_row(each) for each in answer.receipts]
    parts: list[Part] = [form, Table("Readers", COLUMNS, rows, "Nobody has a receipt of that topic.", note, more)]
    parts[1:1] = [Notice(each, Tone.WARNING) for each in (fresh.problem, answer.incomplete) if each]
    return Page(f"Who was sent a record of {request.topic}", parts, lead=LEAD)


def _row(of: traffic.Receipt) -> Cells:
    return [
        f"{of.partition} (of an earlier topic)" if of.earlier_topic else f"{of.partition}",
        of.principal,
        of.group or words.NONE,
        ", ".join(of.clients) or words.NONE,
        words.toned(word(traffic.ReceiptState, of.state)),
        *(_time(of, field, getattr(of, field)) for field in ("first_time", "last_time", "last_read_time")),
        ", ".join(of.clusters) or words.NONE,
    ]


def _time(of: traffic.Receipt, field: str, time: Timestamp) -> str:
    return words.moment(time) if of.HasField(field) else words.NONE  # type: ignore[arg-type]  # a field of a Receipt
