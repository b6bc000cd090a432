"""What goes from the tasks that read to the one that writes, in one frame: reports, sums, names of series.

A row's `kind` says which of them it is. In the order of kinds reports come first: who writes knows which of them count
before it sees the first sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import Any, TypeVar

import pyarrow

from services.pipeline.traffic.reports import NUMBERS
from services.pipeline.traffic.sifting import Report
from services.pipeline.traffic.sums import Names, Row, Step


class Kind(IntEnum):
    """Of a row. Those of sums are their steps."""

    REPORT = 0
    MINUTE = Step.MINUTE
    HOUR = Step.HOUR
    DAY = Step.DAY
    SERIES = 4


ORDER = ("kind", "time", "series")
"""Columns by which whoever writes gets them."""
SCHEMA = """
    kind tinyint, time bigint, series string, records bigint, bytes bigint, calls bigint, errors bigint, latency binary,
    names array<string>,
    report struct<
        partition: int, offset: bigint, written: timestamp, id: string, start: timestamp, end: timestamp,
        counters: bigint, overflowed: bigint, problem: string, is_folded: boolean
    >
"""
ARROW_TIME = pyarrow.timestamp("us", tz="UTC")
ARROW_NAMES = pyarrow.list_(pyarrow.string())
ARROW_REPORT = pyarrow.struct(
    [
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("written", ARROW_TIME),
        ("id", pyarrow.string()),
        ("start", ARROW_TIME),
        ("end", ARROW_TIME),
        ("counters", pyarrow.int64()),
        ("overflowed", pyarrow.int64()),
        ("problem", pyarrow.string()),
        ("is_folded", pyarrow.bool_()),
    ]
)
ARROW_ROW = [
    ("kind", pyarrow.int8()),
    ("time", pyarrow.int64()),
    ("series", pyarrow.string()),
    *((name, pyarrow.int64()) for name in NUMBERS),
    ("latency", pyarrow.binary()),
]
ARROW_SCHEMA = pyarrow.schema([*ARROW_ROW, ("names", ARROW_NAMES), ("report", ARROW_REPORT)])
ROWS_AT_ONCE = 2_000
"""In an Arrow batch: some 3 MB."""

Some = TypeVar("Some")


def of_sums(rows: Iterable[Row]) -> Iterator[pyarrow.RecordBatch]:
    """Sums, as tasks give them on."""
    for some in in_parts(rows, ROWS_AT_ONCE):
        columns = zip(*some, strict=True)
        yield _batch(
            {name: pyarrow.array(column, kind) for column, (name, kind) in zip(columns, ARROW_ROW, strict=True)},
            len(some),
        )


def of_series(series: Mapping[str, Names]) -> Iterator[pyarrow.RecordBatch]:
    """Names of series, as tasks give them on."""
    for some in in_parts(series.items(), ROWS_AT_ONCE):
        ids, names = zip(*some, strict=True)
        columns = {
            "kind": pyarrow.array([Kind.SERIES] * len(some), pyarrow.int8()),
            "series": pyarrow.array(ids, pyarrow.string()),
            "names": pyarrow.array(names, ARROW_NAMES),
        }
        yield _batch(columns, len(some))


def of_reports(reports: Sequence[tuple[Report, bool]]) -> pyarrow.RecordBatch:
    """Reports, as tasks give them on, and whether each is in the sums. Without any it is one row that says nothing: a
    frame without rows may be no task to Spark, and there is a position to write.
    """
    told: list[dict[str, Any] | None] = [
        {
            "partition": report.place[0],
            "offset": report.place[1],
            **{name: getattr(report, name) for name in ("written", "id", "start", "end", "counters", "overflowed")},
            "problem": report.problem,
            "is_folded": is_folded,
        }
        for report, is_folded in reports
    ] or [None]
    columns = {
        "kind": pyarrow.array([Kind.REPORT] * len(told), pyarrow.int8()),
        "report": pyarrow.array(told, ARROW_REPORT),
    }
    return _batch(columns, len(told))


def in_parts(many: Iterable[Some], size: int) -> Iterator[list[Some]]:
    """As lists of `size`; the last one may be shorter."""
    waiting = iter(many)
    while some := list(islice(waiting, size)):
        yield some


def _batch(columns: Mapping[str, pyarrow.Array], size: int) -> pyarrow.RecordBatch:
    arrays = [
        columns[field.name] if field.name in columns else pyarrow.nulls(size, field.type) for field in ARROW_SCHEMA
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def by_kind(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[tuple[Kind, pyarrow.RecordBatch]]:
    """Batches that are in the order of kinds, each cut into batches of one kind."""
    for batch in batches:
        kinds = batch.column("kind").to_numpy()
        for kind in Kind:
            first, end = kinds.searchsorted(kind, "left"), kinds.searchsorted(kind, "right")
            if first < end:
                yield kind, batch.slice(first, end - first)


def to_reports(batch: pyarrow.RecordBatch) -> Iterator[tuple[Report, bool]]:
    """What `of_reports` was given."""
    for told in batch.column("report").to_pylist():
        if told is not None:
            place, is_folded = (told.pop("partition"), told.pop("offset")), told.pop("is_folded")
            yield Report(place, **told), is_folded


def to_sums(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[Row]:
    """What `of_sums` was given."""
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name, _ in ARROW_ROW), strict=True)


def to_series(batch: pyarrow.RecordBatch) -> tuple[list[str], list[Names]]:
    """Digests and names of what `of_series` was given."""
    return batch.column("series").to_pylist(), list(map(tuple, batch.column("names").to_pylist()))
