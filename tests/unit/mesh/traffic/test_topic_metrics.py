"""The series of topics: within a budget, and right in sum."""

from datetime import UTC, datetime

from prometheus_client import REGISTRY

from mesh.traffic.counting import Combination, Counts
from mesh.traffic.metrics import MOST_TOPICS, TrafficMetrics
from mesh.traffic.sketches import LatencySketch

metrics = TrafficMetrics("test_of_topics")
PREFIX = "kafka_mesh_test_of_topics_traffic"


def value(name: str, topic: str) -> float:
    labels = {"topic": topic, "cluster": "c1", "api": "Produce"}
    return REGISTRY.get_sample_value(f"{PREFIX}_topic_{name}_total", labels) or 0.0


def test_an_intervals_traffic_is_added_by_topic_and_the_rest_is_others() -> None:
    counts = Counts(LatencySketch, datetime.now(UTC))
    for client in ("shop", "till"):
        counts.count(Combination(client, topic="apples", cluster="c1", api="Produce"), records=5, size=500, errors=1)
    metrics.note(counts.take(datetime.now(UTC)))
    counts.count(Combination(api="ApiVersions"))
    for number in range(MOST_TOPICS + 9):
        counts.count(Combination("shop", topic=f"t{number:03}", cluster="c1", api="Produce"), records=2, size=10)
    metrics.note(counts.take(datetime.now(UTC)))
    assert (value("records", "apples"), value("bytes", "apples"), value("errors", "apples")) == (10, 1000, 2)
    assert (value("records", "t000"), value("records", "other"), value("bytes", "other")) == (2, 20, 100)
    assert value("records", "") == 0
    assert REGISTRY.get_sample_value(f"{PREFIX}_unnamed_topics") == 10
