"""Counters of every request are plain numbers, and scraped as all others are."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from services.gateway.counting import Answered, Count, Counts, Histogram, Histograms, Times


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


def test_times_fall_into_buckets_whose_bounds_double() -> None:
    registry = CollectorRegistry()
    seconds = Histograms("kafka_mesh_eating_seconds", "How long it took.", "kind", registry)
    for each in (0.0, 0.00004, 0.00006, 0.3, 100.0):
        seconds.of("apples").observe(each)
    told = generate_latest(registry).decode().splitlines()
    assert "# TYPE kafka_mesh_eating_seconds histogram" in told
    counts = {line.split('le="')[1].split('"')[0]: line.split()[-1] for line in told if "_bucket" in line}
    assert [counts[bound] for bound in ("5e-05", "0.0001", "0.2048", "0.4096", "26.2144", "+Inf")] == [
        "2.0", "3.0", "3.0", "4.0", "4.0", "5.0",
    ]  # fmt: skip
    assert 'kafka_mesh_eating_seconds_sum{kind="apples"} 100.3001' in told


def test_what_one_client_has_counts_among_all_and_its_time_is_split() -> None:
    of_all = Count()
    times = Times(Histogram(), Histogram())
    answered = Answered(of_all, times)
    answered.times.took(0.5, 0.2)
    assert (times.gateway.seconds, times.upstream.seconds) == (0.3, 0.2)
    assert sum(times.gateway.classic()) == sum(times.upstream.classic()) == 1
