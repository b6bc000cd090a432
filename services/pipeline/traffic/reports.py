"""Records of mesh.traffic, read: what a report has counted, or what is wrong with a record that is none.

What is no report, or has times and numbers that can't be, has a `problem` and counts for nothing. It must not end the
job, or nothing behind it would ever be counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import traffic
from services.pipeline.traffic.sifting import Place, Report

Who = tuple[str, str, str, str, str, str]
"""Client, principal, topic, rule, cluster, API."""
Counter = tuple[str, str, str, str, str, str, int, int, int, int, bytes]
"""A `Who`; records, bytes, calls, errors; the sketch of latencies, empty for none. A plain tuple: there are hundreds of
thousands of them a second."""
NUMBERS = ("records", "bytes", "calls", "errors")
FIRST_NUMBER = len(("client", "principal", "topic", "rule", "cluster", "api"))
LAST_SECOND = 250_000_000_000  # in the year 9892: what comes behind 9999 is no time for Python
LARGEST_NUMBER = 2**50  # of a report: a petabyte. Sums of thousands of them still have 64 bits
MOST_AHEAD = timedelta(hours=1)
"""How far the clock of a reporter may be ahead of ours. A wrong one would make tables of days that are years away."""


@dataclass(frozen=True, slots=True)
class Read:
    """A record of mesh.traffic."""

    report: Report
    reporter: str = ""
    counters: Sequence[Counter] = ()
    """None where the report has a problem."""


def read_report(value: bytes | None, place: Place, written: datetime | None, now: datetime) -> Read:
    """The report that a record is. `written`: when the record was; `now`: by our clock."""

    def refused(problem: str) -> Read:
        return Read(Report(place, written, problem=problem))

    try:
        report = traffic.TrafficReport.FromString(value or b"")
        name = uuid.UUID(report.id).hex
    except DecodeError:
        return refused("it is no TrafficReport")
    except ValueError:
        return refused(f"its id is no UUID: {report.id[:100]!r}")
    start, end = ((each.seconds, each.nanos) for each in (report.start_time, report.end_time))
    if not (1, 0) <= start <= end < (LAST_SECOND, 0):
        return refused(f"report {report.id} has no interval")
    began = _moment(report.start_time)
    if began > now + MOST_AHEAD:
        return refused(f"report {report.id} is from the future: {began.isoformat()}")
    counters = [
        (
            each.client, each.principal, each.topic, each.rule, each.cluster, each.api,
            each.records, each.bytes, each.calls, each.errors, each.latency_sketch,
        )
        for each in report.counters
    ]  # fmt: skip
    if number := _impossible(counters, report.overflowed):
        return refused(f"report {report.id} has a number that can't be: {number}")
    said = Report(place, written, name, began, _moment(report.end_time), len(counters), report.overflowed)
    return Read(said, report.reporter, counters)


def _impossible(counters: Sequence[Counter], overflowed: int) -> str:
    """A number that a sum may have no room for: that would end the job, and each later one."""
    if not 0 <= overflowed <= LARGEST_NUMBER:
        return f"{overflowed} overflowed"
    columns = zip(*counters, strict=True)
    for name, column in zip(NUMBERS, list(columns)[FIRST_NUMBER:], strict=False):
        for number in (min(column), max(column), sum(column)):  # a series may be there many times
            if not 0 <= number <= LARGEST_NUMBER:
                return f"{number} {name}"
    return ""


def _moment(time: Timestamp) -> datetime:
    return datetime.fromtimestamp(time.seconds, UTC) + timedelta(microseconds=time.nanos // 1_000)
