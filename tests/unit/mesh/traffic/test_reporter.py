"""Reports while the home cluster is away: kept to a bound, the oldest make way, and each that is lost is counted."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client import Counter
from structlog.testing import capture_logs

from mesh.home_cluster import HomeAwayError, HomeCluster, OwnTopic
from mesh.traffic import reporter
from mesh.traffic.counting import Combination, Counts, Interval
from mesh.traffic.metrics import TrafficMetrics
from mesh.traffic.reporter import ReportWriter
from mesh.traffic.sketches import LatencySketch
from tests.fixtures.waiting import wait_until

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
METRICS = TrafficMetrics("test")


class Away(HomeCluster):
    """A home cluster that nobody reaches."""

    def producer_for(self, topic: OwnTopic, client_id: str, properties: Mapping[str, Any]) -> Producer:
        raise HomeAwayError("it is away")


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportWriter]:
    monkeypatch.setattr(reporter, "RETRY_S", 0.01)
    made = ReportWriter(Away(("127.0.0.1:1",)), "mesh.traffic", "gateway-1", "gateway", METRICS)
    made.start()
    yield made
    made.stop(1)


def interval(records: int) -> Interval:
    counts = Counts(LatencySketch, NOON)
    if records:
        counts.count(Combination("shop", topic="orders", api="Produce"), 1.0, records)
    return counts.take(NOON)


def value_of(metric: Any) -> float:
    return float(
        sum(sample.value for one in metric.collect() for sample in one.samples if "created" not in sample.name)
    )


def lost(counter: Counter = METRICS.lost) -> float:
    return value_of(counter)


def tell(writer: ReportWriter, count: int) -> None:
    """One after the other, as they come: each is taken before the next."""
    for number in range(count):
        before = value_of(METRICS.waiting_bytes) + lost()
        writer.hand_over(interval(number + 1))
        wait_until(lambda: value_of(METRICS.waiting_bytes) + lost() > before, "the report is taken")  # noqa: B023


def test_reports_wait_for_the_home_cluster_and_are_lost_at_the_end(writer: ReportWriter) -> None:
    before = lost()
    with capture_logs() as logs:
        tell(writer, 3)
        assert lost() == before
        writer.stop(1)
    assert lost() == before + 3
    away = [line for line in logs if "can't be reported" in line["event"]]
    assert [line["reason"] for line in away] == ["it is away"], "said once"


def test_the_oldest_make_way(writer: ReportWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lost()
    tell(writer, 1)
    size = value_of(METRICS.waiting_bytes)
    monkeypatch.setattr(reporter, "MOST_WAITING_BYTES", 3 * size + 10)
    for number in range(5):
        writer.hand_over(interval(number + 2))
        wait_until(writer._intervals.empty, "it is taken")
    wait_until(lambda: lost() == before + 3, "three have made way")
    assert value_of(METRICS.waiting_bytes) <= 3 * size + 10


def test_an_interval_without_traffic_is_none_to_tell(writer: ReportWriter) -> None:
    before = lost()
    writer.hand_over(interval(0))
    writer.stop(1)
    assert lost() == before
    assert value_of(METRICS.waiting_bytes) == 0
