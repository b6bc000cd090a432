"""Records of mesh.traffic as rows of reports: what a worker makes of the bytes.

A record that is no report becomes a row with a `problem`, and a latency sketch that can't be read becomes none: neither
may end the job, or nothing behind it would ever be counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import datasketches
import pyarrow
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import traffic

TEXTS = ("client", "principal", "topic", "rule", "cluster", "api")
NUMBERS = ("records", "bytes", "calls", "errors")
COUNTER = ", ".join(
    [*(f"{name}: string" for name in TEXTS), *(f"{name}: bigint" for name in NUMBERS), "latency: binary"]
)
SCHEMA = f"""
    report string, partition int, offset bigint, written timestamp, reporter string, start timestamp, end timestamp,
    overflowed bigint, problem string, counters array<struct<{COUNTER}>>
"""
"""`written` is the record's own time, `report` the id without hyphens; of what is no report only place and problem."""
ARROW_TIME = pyarrow.timestamp("us", tz="UTC")
ARROW_COUNTER = pyarrow.struct(
    [
        *((name, pyarrow.string()) for name in TEXTS),
        *((name, pyarrow.int64()) for name in NUMBERS),
        ("latency", pyarrow.binary()),
    ]
)
ARROW_SCHEMA = pyarrow.schema(
    [
        ("report", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("written", ARROW_TIME),
        ("reporter", pyarrow.string()),
        ("start", ARROW_TIME),
        ("end", ARROW_TIME),
        ("overflowed", pyarrow.int64()),
        ("problem", pyarrow.string()),
        ("counters", pyarrow.list_(ARROW_COUNTER)),
    ]
)
REPORTS_AT_ONCE = 20  # in an Arrow batch: each holds hundreds of counters, 1 MB at most
MICROSECONDS = 1_000_000


def read_reports(records: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Rows of SCHEMA of rows that Kafka's source gives."""
    for batch in records:
        for first in range(0, batch.num_rows, REPORTS_AT_ONCE):
            yield _rows(batch.slice(first, REPORTS_AT_ONCE))


def _rows(records: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    reports, problems = zip(*map(_read, records.column("value").to_pylist()), strict=True)
    sizes = [len(report.counters) for report in reports]
    counters = [counter for report in reports for counter in report.counters]
    return pyarrow.RecordBatch.from_arrays(
        [
            [None if problem else uuid.UUID(report.id).hex for report, problem in zip(reports, problems, strict=True)],
            records.column("partition"),
            records.column("offset"),
            records.column("timestamp"),
            [report.reporter for report in reports],
            _times(report.start_time for report in reports),
            _times(report.end_time for report in reports),
            [report.overflowed for report in reports],
            list(problems),
            _lists(sizes, _counters(counters)),
        ],
        schema=ARROW_SCHEMA,
    )


def _read(value: bytes | None) -> tuple[traffic.TrafficReport, str | None]:
    """An empty report, and what is wrong, where the record is none."""
    try:
        report = traffic.TrafficReport.FromString(value or b"")
        uuid.UUID(report.id)
    except DecodeError:
        return traffic.TrafficReport(), "it is no TrafficReport"
    except ValueError:
        return traffic.TrafficReport(), f"its id is no UUID: {report.id[:100]!r}"
    if report.start_time.seconds <= 0 or report.end_time.ToNanoseconds() < report.start_time.ToNanoseconds():
        return traffic.TrafficReport(), f"report {report.id} has no interval"
    return report, None


def _counters(counters: Sequence[traffic.TrafficCounter]) -> pyarrow.StructArray:
    columns: list[Any] = [pyarrow.array([getattr(each, name) for each in counters], pyarrow.string()) for name in TEXTS]
    columns += [pyarrow.array([getattr(each, name) for each in counters], pyarrow.int64()) for name in NUMBERS]
    columns.append(pyarrow.array([_sound(each.latency_sketch) for each in counters], pyarrow.binary()))
    return pyarrow.StructArray.from_arrays(columns, fields=list(ARROW_COUNTER))


def _sound(sketch: bytes) -> bytes | None:
    """The sketch, unless there is none or it is broken: Spark fails of those."""
    if not sketch:
        return None
    try:
        datasketches.kll_floats_sketch.deserialize(sketch)
    except (RuntimeError, ValueError, IndexError):
        return None
    return sketch


def _lists(sizes: Sequence[int], flat: pyarrow.Array) -> pyarrow.ListArray:
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    return pyarrow.ListArray.from_arrays(pyarrow.array(offsets, pyarrow.int32()), flat)


def _times(times: Iterable[Timestamp]) -> list[int]:
    return [time.seconds * MICROSECONDS + time.nanos // 1_000 for time in times]
