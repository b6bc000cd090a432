"""The frame from the tasks that read to the task that writes: reports, sums, names of series, receipts.

Theory of operation
1. A row of the frame is a *piece*: some hundreds of sums, or all reports of a task, in Arrow's format. Spark sorts the
   pieces and does not parse them: one row for each sum cost as much as all other work of Spark.
2. The `kind` of a piece names its content. In the order of kinds reports come first: so the writer knows which of them
   count before it gets the first sum.
3. The sums of a piece are in the order of their keys, and the `key` of a piece is that of its first sum. So pieces of
   several tasks can be merged as they arrive: no later piece has a sum before the first key of a piece.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from heapq import heappop, heappush, heapreplace
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeVar, get_type_hints

import pyarrow

from services.pipeline.traffic.receipts import ReceiptRow
from services.pipeline.traffic.reports import NUMBERS
from services.pipeline.traffic.rollup import Names, Row, Step
from services.pipeline.traffic.watermark import Report


class Kind(IntEnum):
    """The kind of a piece. The kinds of sums are their steps."""

    REPORT = 0
    MINUTE = Step.MINUTE
    HOUR = Step.HOUR
    DAY = Step.DAY
    SERIES = 4
    RECEIPT = 5


ORDER = ("kind", "key")
"""Columns by which the writer gets the pieces sorted."""
SCHEMA = "kind tinyint, key binary, value binary"
PIECES = pyarrow.schema([("kind", pyarrow.int8()), ("key", pyarrow.binary()), ("value", pyarrow.binary())])
TIME = pyarrow.timestamp("us", tz="UTC")
REPORTS = pyarrow.schema(
    [
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("written", TIME),
        ("id", pyarrow.string()),
        ("start", TIME),
        ("end", TIME),
        ("counters", pyarrow.int64()),
        ("overflowed", pyarrow.int64()),
        ("problem", pyarrow.string()),
        ("is_folded", pyarrow.bool_()),
    ]
)
SUMS = pyarrow.schema(
    [
        ("time", pyarrow.int64()),
        ("series", pyarrow.string()),
        *((name, pyarrow.int64()) for name in NUMBERS),
        ("latency", pyarrow.binary()),
    ]
)
SERIES = pyarrow.schema([("series", pyarrow.string()), ("names", pyarrow.list_(pyarrow.string()))])
RECEIPTS = pyarrow.schema(
    [
        (name, {int: pyarrow.int64(), float: pyarrow.float64()}.get(kind, pyarrow.string()))
        for name, kind in get_type_hints(ReceiptRow).items()
    ]
)
SUMS_OF_A_PIECE = 250
"""About 300 kB."""
SORTED_AT_ONCE = 5_000
"""Sums that are sorted together: 20 pieces, and 15 MB at most."""
SERIES_OF_A_PIECE = RECEIPTS_OF_A_PIECE = 2_000
KEY = struct.Struct(">q16s")
"""The key of a sum: bytes in the order of times and series. Times are after 1970."""

Some = TypeVar("Some")
Key = tuple[int, str]
_key = itemgetter(0, 1, 2)
_step = itemgetter(0)


def of_sums(rows: Iterable[Row]) -> Iterator[pyarrow.RecordBatch]:
    """Makes pieces of sums, which may come in any order."""
    for some in in_parts(rows, SORTED_AT_ONCE):
        some.sort(key=_key)
        yield _pieces(
            (step, _key_of(piece[0]), _written([each[1:] for each in piece], SUMS))
            for step, same in groupby(some, _step)
            for piece in in_parts(same, SUMS_OF_A_PIECE)
        )


def of_series(series: Mapping[str, Names]) -> Iterator[pyarrow.RecordBatch]:
    """Makes pieces of names of series."""
    for some in in_parts(series.items(), SERIES_OF_A_PIECE):
        yield _pieces([(Kind.SERIES, b"", _written(some, SERIES))])


def of_receipts(rows: Iterable[ReceiptRow]) -> Iterator[pyarrow.RecordBatch]:
    """Makes pieces of receipts, none of which has a key twice."""
    for some in in_parts(rows, RECEIPTS_OF_A_PIECE):
        yield _pieces([(Kind.RECEIPT, b"", _written(some, RECEIPTS))])


def of_reports(reports: Sequence[tuple[Report, bool]]) -> pyarrow.RecordBatch:
    """Makes one piece of reports; for each report, whether it is in the sums.

    There is a piece even without reports. Spark may skip a task without rows, and the position has to be written.
    """
    names = REPORTS.names[2:-1]
    told = [(*each.place, *(getattr(each, name) for name in names), is_folded) for each, is_folded in reports]
    return _pieces([(Kind.REPORT, b"", _written(told, REPORTS))])


def in_parts(many: Iterable[Some], size: int) -> Iterator[list[Some]]:
    """Lists of `size` items; the last list may be shorter."""
    waiting = iter(many)
    while some := list(islice(waiting, size)):
        yield some


def by_kind(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[tuple[Kind, pyarrow.RecordBatch]]:
    """Batches that are in the order of kinds, each cut into batches of one kind."""
    for batch in batches:
        kinds = batch.column("kind").to_numpy()
        for kind in Kind:
            first, end = kinds.searchsorted(kind, "left"), kinds.searchsorted(kind, "right")
            if first < end:
                yield kind, batch.slice(first, end - first)


def to_reports(batch: pyarrow.RecordBatch) -> Iterator[tuple[Report, bool]]:
    """The reports that `of_reports` got."""
    for told in _told(batch, REPORTS):
        for partition, offset, *rest, is_folded in told:
            yield Report((partition, offset), *rest), is_folded


def to_sums(step: Step, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[Row]:
    """The sums of a step that `of_sums` got, in the order of keys."""
    heads: list[tuple[Key, int, Row, Iterator[Row]]] = []
    """The first unused row of each piece, by its key; the number distinguishes pieces with the same key."""
    told = (piece for batch in batches for piece in _told(batch, SUMS))
    for number, piece in enumerate(told):
        rows = ((step, *each) for each in piece)
        first = next(rows)
        while heads and heads[0][0] < first[1:3]:
            yield _passed(heads)
        heappush(heads, (first[1:3], number, first, rows))
    while heads:
        yield _passed(heads)


def to_series(batch: pyarrow.RecordBatch) -> tuple[list[str], list[Names]]:
    """Digests and names of the series that `of_series` got."""
    told = [each for piece in _told(batch, SERIES) for each in piece]
    return [series for series, _ in told], [tuple(names) for _, names in told]


def to_receipts(batch: pyarrow.RecordBatch) -> Iterator[list[ReceiptRow]]:
    """The receipts of each piece that `of_receipts` got."""
    for piece in _told(batch, RECEIPTS):
        yield [ReceiptRow(*each) for each in piece]


def _passed(heads: list[tuple[Key, int, Row, Iterator[Row]]]) -> Row:
    """Removes and returns the next row."""
    _, number, row, rest = heads[0]
    following = next(rest, None)
    if following is None:
        heappop(heads)
    else:
        heapreplace(heads, (following[1:3], number, following, rest))
    return row


def _key_of(row: Row) -> bytes:
    _, time, series, *_ = row
    return KEY.pack(time, bytes.fromhex(series))


def _pieces(pieces: Iterable[tuple[int, bytes, bytes]]) -> pyarrow.RecordBatch:
    return _batch(list(pieces), PIECES)


def _written(rows: Sequence[tuple[Any, ...]], schema: pyarrow.Schema) -> bytes:
    written: bytes = _batch(rows, schema).serialize().to_pybytes()
    return written


def _batch(rows: Sequence[tuple[Any, ...]], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _told(batch: pyarrow.RecordBatch, schema: pyarrow.Schema) -> Iterator[Iterator[tuple[Any, ...]]]:
    """The rows of each piece."""
    for value in batch.column("value"):
        piece = pyarrow.ipc.read_record_batch(value.as_buffer(), schema)
        yield zip(*(column.to_pylist() for column in piece.columns), strict=True)
