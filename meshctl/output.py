"""Tables for people and proto JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mesh import durations

PIPED_WIDTH = 1000  # columns when nobody looks: lines are not folded


def as_dict(message: Message) -> dict[str, Any]:
    """Proto JSON with the field names of the .proto files; fields at their default are there too."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def print_json(content: Message | dict[str, Any], *, one_line: bool = False) -> None:
    """One JSON document on stdout; `one_line` where several follow each other."""
    body = as_dict(content) if isinstance(content, Message) else content
    click.echo(json.dumps(body, ensure_ascii=False, indent=None if one_line else 2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table, or the sentence `empty` when it has no rows."""
    made = table(columns, rows)
    if not made.row_count:
        click.echo(empty)
        return
    stream = click.get_text_stream("stdout")
    Console(file=stream, width=None if stream.isatty() else PIPED_WIDTH, highlight=False).print(made)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table as all of ours look."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))  # Text: what operators wrote is no markup
    return made


def length_of(duration: Duration) -> str:
    """A length of time in milliseconds; "-" for none."""
    return f"{durations.whole_ms(duration)} ms" if durations.in_ms(duration) else "-"


def moment(timestamp: Timestamp) -> str:
    """A point in time in the reader's time zone; "-" when there is none."""
    if not timestamp.ByteSize():
        return "-"
    return timestamp.ToDatetime(tzinfo=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(timestamp: Timestamp, now: datetime | None = None) -> str:
    """How long ago, roughly: "3 s ago", "5 min ago"."""
    if not timestamp.ByteSize():
        return "-"
    seconds = max(0, int(((now or datetime.now(UTC)) - timestamp.ToDatetime(tzinfo=UTC)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def count(number: int, noun: str) -> str:
    """ "1 topic", "3 topics"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
