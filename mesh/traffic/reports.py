"""An interval as `TrafficReport`s: one, or as many as it takes to keep each a record that every cluster takes."""

from collections.abc import Callable, Iterator
from uuid import uuid4

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import traffic
from mesh.traffic.counting import Combination, Interval, Tally
from mesh.traffic.sketches import LatencySketch

REPORT_BYTES = 900_000
"""Bound of one report: by default, brokers take records of 1 MB."""
SLICE_COUNTERS = 20
"""Between two breaths: about 0.5 ms."""


def reports(
    interval: Interval, reporter: str, kind: str, breathe: Callable[[], None] = lambda: None
) -> Iterator[traffic.TrafficReport]:
    """Each combination is in one report; the first report has the overflow. `breathe` is called now and then."""
    report = _begun(interval, reporter, kind)
    report.overflowed = interval.overflowed
    size = report.ByteSize()
    for number, (who, tally) in enumerate(interval.tallies.items(), start=1):
        if number % SLICE_COUNTERS == 0:
            breathe()
        counter = _counter(who, tally)
        counter_size = counter.ByteSize() + 8  # what it takes to be in a list
        if size + counter_size > REPORT_BYTES:
            yield report
            report = _begun(interval, reporter, kind)
            size = report.ByteSize()
        report.counters.append(counter)
        size += counter_size
    if report.counters:
        yield report


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
        latency_sketch=tally.latencies(LatencySketch),
    )
