"""An interval as `TrafficReport`s: one, or as many as it takes to keep each a record that every cluster takes."""

from collections.abc import Callable, Iterator
from uuid import uuid4

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import traffic
from mesh.traffic.counting import Combination, Interval, Tally
from mesh.traffic.receipts import OVERFLOW, Reading, Sent, packed

REPORT_BYTES = 900_000
"""Bound of one report: by default, brokers take records of 1 MB."""
SLICE_COUNTERS = 20
"""Between two breaths: about 0.5 ms."""


def reports(
    interval: Interval, reporter: str, kind: str, breathe: Callable[[], None] = lambda: None
) -> Iterator[traffic.TrafficReport]:
    """Each combination and each reading is in one report; the first report has the overflow.

    `breathe` is called now and then.
    """
    report = _begun(interval, reporter, kind)
    report.overflowed = interval.overflowed
    size = report.ByteSize()
    for number, part in enumerate(_parts(interval), start=1):
        if number % SLICE_COUNTERS == 0:
            breathe()
        part_size = part.ByteSize() + 8  # what it takes to be in a list
        if size + part_size > REPORT_BYTES:
            yield report
            report = _begun(interval, reporter, kind)
            size = report.ByteSize()
        if isinstance(part, traffic.TrafficCounter):
            report.counters.append(part)
        else:
            report.sent.append(part)
        size += part_size
    if report.counters or report.sent:
        yield report


def _parts(interval: Interval) -> Iterator[traffic.TrafficCounter | traffic.SentOffsets]:
    for who, tally in interval.tallies.items():
        yield _counter(who, tally)
    for reading, sent in interval.receipts.items():
        yield _sent(reading, sent)


def _sent(reading: Reading, sent: Sent) -> traffic.SentOffsets:
    if reading is OVERFLOW:
        return traffic.SentOffsets()
    ranges = packed(sent.ranges())
    return traffic.SentOffsets(**reading._asdict(), ranges=ranges, perhaps=sent.perhaps or (), exact=sent.is_exact)


def _begun(interval: Interval, reporter: str, kind: str) -> traffic.TrafficReport:
    start, end = Timestamp(), Timestamp()
    start.FromDatetime(interval.start)
    end.FromDatetime(interval.end)
    return traffic.TrafficReport(id=str(uuid4()), reporter=reporter, reporter_kind=kind, start_time=start, end_time=end)


def _counter(who: Combination, tally: Tally) -> traffic.TrafficCounter:
    return traffic.TrafficCounter(
        **who._asdict(),
        records=tally.records,
        bytes=tally.bytes,
        calls=tally.calls,
        errors=tally.errors,
        latency_sketch=tally.latencies(),
    )
