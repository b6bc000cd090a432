"""Records of mesh.traffic as rows of reports: what a worker makes of the bytes.

A record that is no report, or whose times and numbers can't be, becomes a row with a `problem`; a latency sketch that
can't be read becomes none. Neither may end the job, or nothing behind it would ever be counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import datasketches
import pyarrow
import pyarrow.compute
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
LAST_SECOND = 250_000_000_000  # in the year 9892: what comes behind 9999 is no time for Python
LARGEST_NUMBER = 2**50  # of a counter: a petabyte. Sums of thousands of them still have 64 bits


def read_reports(records: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Rows of SCHEMA of rows that Kafka's source gives."""
    for batch in records:
        for first in range(0, batch.num_rows, REPORTS_AT_ONCE):
            yield _rows(batch.slice(first, REPORTS_AT_ONCE))


def _rows(records: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    read = list(map(_read, records.column("value").to_pylist()))
    counters = _counters([counter for report, _ in read for counter in report.counters])
    if not _can_be(counters):
        read = [_sober(*each) for each in read]
        counters = _counters([counter for report, _ in read for counter in report.counters])
    reports, problems = zip(*read, strict=True)
    return pyarrow.RecordBatch.from_arrays(
        [
            [None if problem else uuid.UUID(report.id).hex for report, problem in read],
            records.column("partition"),
            records.column("offset"),
            records.column("timestamp"),
            [report.reporter for report in reports],
            _times(report.start_time for report in reports),
            _times(report.end_time for report in reports),
            [report.overflowed for report in reports],
            list(problems),
            _lists([len(report.counters) for report in reports], counters),
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
    start, end = ((each.seconds, each.nanos) for each in (report.start_time, report.end_time))
    if not (1, 0) <= start <= end < (LAST_SECOND, 0):
        return traffic.TrafficReport(), f"report {report.id} has no interval"
    if not 0 <= report.overflowed <= LARGEST_NUMBER:
        return traffic.TrafficReport(), f"report {report.id} has a number that can't be: {report.overflowed} overflowed"
    return report, None


def _can_be(counters: pyarrow.StructArray) -> bool:
    """Whether their numbers can be added up: a sum that has no room would end the job, and each later one."""
    for name in NUMBERS:
        bounds = pyarrow.compute.min_max(counters.field(name)).as_py()
        if bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] > LARGEST_NUMBER):
            return False
    return True


def _sober(report: traffic.TrafficReport, problem: str | None) -> tuple[traffic.TrafficReport, str | None]:
    """Without reports whose numbers can't be."""
    for counter in report.counters:
        for name in NUMBERS:
            if not 0 <= getattr(counter, name) <= LARGEST_NUMBER:
                number = f"{getattr(counter, name)} {name}"
                return traffic.TrafficReport(), f"report {report.id} has a number that can't be: {number}"
    return report, problem


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
