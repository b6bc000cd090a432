"""Parses records of mesh.traffic: the counters of a report, or the problem of a malformed record.

A record that is no report, or has impossible times or numbers, gets a `problem` and is not counted. It must not end the
job: then no record behind it would ever be counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import traffic
from mesh.traffic.receipts import Range, unpacked
from services.pipeline.traffic.watermark import Place, Report

Who = tuple[str, str, str, str, str, str]
"""Client, principal, topic, rule, cluster, API."""
Counter = tuple[str, str, str, str, str, str, int, int, int, int, bytes]
"""A `Who`; records, bytes, calls, errors; the sketch of latencies, empty for none.

It is a plain tuple because there are hundreds of thousands of them a second."""
NUMBERS = ("records", "bytes", "calls", "errors")
FIRST_NUMBER = len(("client", "principal", "topic", "rule", "cluster", "api"))
LAST_SECOND = 250_000_000_000  # in the year 9892: Python has no times after 9999
LARGEST_NUMBER = 2**50  # in a report: a petabyte. Sums of thousands of them still fit into 64 bits
LONGEST_NAME = 500
"""Characters; PostgreSQL's indexes take 2,700 bytes."""
LARGEST_OFFSET = 2**62
NO_TOPIC_ID = "0" * 32
MOST_AHEAD = timedelta(hours=1)
"""The most that a reporter's clock may be ahead of this one. A wrong clock would create tables of days in far years."""


ReceiptNames = tuple[str, str, str, str, str, str, int]
"""Principal, client, group, topic, cluster, topic id in hexadecimal, partition."""


class Receipt(NamedTuple):
    """The offsets that a gateway has sent to one reader of one partition."""

    names: ReceiptNames
    ranges: tuple[Range, ...]
    perhaps: Range | None
    exact: bool


@dataclass(frozen=True, slots=True)
class Read:
    """A record of mesh.traffic."""

    report: Report
    reporter: str = ""
    counters: Sequence[Counter] = ()
    receipts: Sequence[Receipt] = ()
    """Both are empty if the report has a problem."""


def read_report(value: bytes | None, place: Place, written: datetime | None, now: datetime) -> Read:
    """Parses a record. `written`: Kafka's time of the record; `now`: this machine's time."""

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
    receipts = [receipt for each in report.sent if (receipt := _receipt(each)) is not None]
    if len(receipts) < len(report.sent):
        return refused(f"report {report.id} has offsets that can't be")
    said = Report(place, written, name, began, _moment(report.end_time), len(counters), report.overflowed)
    return Read(said, report.reporter, counters, receipts)


def _impossible(counters: Sequence[Counter], overflowed: int) -> str:
    """A number that may not fit into a sum: it would end the job, and each later run."""
    if not 0 <= overflowed <= LARGEST_NUMBER:
        return f"{overflowed} overflowed"
    columns = zip(*counters, strict=True)
    for name, column in zip(NUMBERS, list(columns)[FIRST_NUMBER:], strict=False):
        for number in (min(column), max(column), sum(column)):  # a series may occur many times
            if not 0 <= number <= LARGEST_NUMBER:
                return f"{number} {name}"
    return ""


def _receipt(sent: traffic.SentOffsets) -> Receipt | None:
    """The receipt in a report; None if it can't be."""
    numbers, perhaps = list(sent.ranges), list(sent.perhaps)
    if len(numbers) % 2 or min(numbers[::2], default=0) < 0 or min(numbers[1::2], default=1) < 1:
        return None
    if sum(numbers) > LARGEST_OFFSET or sent.partition < 0 or len(sent.topic_id) not in (0, 16):
        return None
    if perhaps and (len(perhaps) != 2 or not 0 <= perhaps[0] < perhaps[1] <= LARGEST_OFFSET):
        return None
    principal, client, group, topic, cluster = (
        each[:LONGEST_NAME].replace("\0", "")
        for each in (sent.principal, sent.client, sent.group, sent.topic, sent.cluster)
    )
    names = (principal, client, group, topic, cluster, sent.topic_id.hex() or NO_TOPIC_ID, sent.partition)
    return Receipt(names, tuple(unpacked(numbers)), (perhaps[0], perhaps[1]) if perhaps else None, sent.exact)


def _moment(time: Timestamp) -> datetime:
    return datetime.fromtimestamp(time.seconds, UTC) + timedelta(microseconds=time.nanos // 1_000)
