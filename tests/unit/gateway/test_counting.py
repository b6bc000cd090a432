"""Counters of every request are plain numbers, and scraped as all others are."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from services.gateway.counting import Counts


def test_they_are_scraped_by_their_labels() -> None:
    registry = CollectorRegistry()
    counts = Counts("kafka_mesh_eaten", "Fruit that was eaten.", ["kind"], registry)
    counts.labels("apples").total += 2
    counts.labels("apples").total += 1
    counts.labels("bananas")
    assert generate_latest(registry).decode().splitlines() == [
        "# HELP kafka_mesh_eaten_total Fruit that was eaten.",
        "# TYPE kafka_mesh_eaten_total counter",
        'kafka_mesh_eaten_total{kind="apples"} 3.0',
        'kafka_mesh_eaten_total{kind="bananas"} 0.0',
    ]


def test_each_label_has_a_value() -> None:
    counts = Counts("kafka_mesh_eaten", "Fruit that was eaten.", ["kind", "colour"], CollectorRegistry())
    with pytest.raises(ValueError, match="kind"):
        counts.labels("apples")
