"""Receipts: rows of who was sent which offsets, folded by reader and time. No I/O, no Spark.

Theory of operation
1. A row is a reader of a partition in an hour; of topics that ask for exact receipts, in a minute. Its ranges are the
   union of those that gateways have reported. So a report that is read twice changes nothing.
2. A row has at most `MOST_RANGES` ranges. Further ranges go into one wide range, `perhaps`: the row then says that
   some of these offsets were sent, and not which. The writer does the same when it adds to a row of the table.
3. A reader of a topic that was created again has other rows, because the cluster gave the topic another id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple

from mesh.traffic.receipts import Range, Sent
from services.pipeline.traffic.reports import Receipt, ReceiptNames
from services.pipeline.traffic.rollup import DAY_S, EPOCH, SECONDS, Step

MOST_RANGES = 1_000
"""Ranges of one row: some 16 kB."""


class ReceiptRow(NamedTuple):
    """A row, or an addition to one."""

    reader: str
    """The digest of the names."""
    time: int
    """The hour or minute, in seconds since 1970."""
    first: float
    last: float
    """The beginning of the first report and the end of the last one, in seconds since 1970."""
    sent: str
    perhaps: str
    """Both as PostgreSQL writes multiranges."""
    principal: str
    client: str
    group_name: str
    topic: str
    cluster: str
    topic_id: str
    partition: int


class ReceiptFold:
    """The receipts of one task, until they are taken."""

    def __init__(self, begins: date) -> None:
        """`begins`: the first day that has rows."""
        self._begins = (begins - EPOCH).days * DAY_S
        self._rows: dict[tuple[int, ReceiptNames], _Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, start: float, end: float, receipts: Iterable[Receipt]) -> None:
        """Adds the receipts of a report from `start` to `end`, in seconds since 1970."""
        for each in receipts:
            step = SECONDS[Step.MINUTE if each.exact else Step.HOUR]
            time = int(start) - int(start) % step
            if time < self._begins:
                continue
            key = time, each.names
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = _Row(start, end)
            row.first, row.last = min(row.first, start), max(row.last, end)
            for first, behind in each.ranges:
                row.sent.add(first, behind)
            if each.perhaps is not None:
                row.sent.add_perhaps(*each.perhaps)

    def take(self) -> Iterator[ReceiptRow]:
        """The rows so far, each key once. Later receipts go to new rows."""
        rows, self._rows = self._rows, {}
        for (time, names), row in rows.items():
            sent = multirange(row.sent.ranges())
            perhaps = multirange([row.sent.perhaps] if row.sent.perhaps else [])
            yield ReceiptRow(_digest(names), time, row.first, row.last, sent, perhaps, *names)


class _Row:
    __slots__ = ("first", "last", "sent")

    def __init__(self, first: float, last: float) -> None:
        self.first = first
        self.last = last
        self.sent = Sent(MOST_RANGES)


def multirange(ranges: Iterable[Range]) -> str:
    """The ranges as PostgreSQL writes them."""
    return "{" + ",".join(f"[{first},{end})" for first, end in ranges) + "}"


def _digest(names: ReceiptNames) -> str:
    text = json.dumps(names, ensure_ascii=False, separators=(",", ":"))
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
