"""Counters of every request are plain numbers, and scraped as all others are."""

import math
import random
from bisect import bisect_left

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from mesh.exposition.native import PER_OCTAVE, ZERO_S, bucket_of
from services.gateway.counting import (
    BELOW,
    BUCKETS,
    OCTAVES,
    UNIT_S,
    Answered,
    Count,
    Counts,
    Histogram,
    Histograms,
    Times,
    classic,
    native,
)


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
    assert sum(classic(times.gateway.cells)) == sum(classic(times.upstream.cells)) == 1


def test_an_observation_is_in_the_right_bucket_of_either_kind() -> None:
    chance = random.Random(3)
    bounds = [UNIT_S * 2**place for place in range(BUCKETS)]
    on_bounds = [2.0 ** (bucket / PER_OCTAVE) for bucket in range(-150, 60, 7)]
    spread = [chance.lognormvariate(-7, 3) for _ in range(2000)]
    for value in (*bounds, *on_bounds, *spread, 0.0, -1e-9, 1e-7, 1600.0):
        histogram = Histogram()
        histogram.observe(value)
        in_classic, in_native = classic(histogram.cells), native(histogram.cells)
        assert in_classic.index(1) == bisect_left(bounds, value)
        (bucket,) = in_native
        nearest = round(PER_OCTAVE * math.log2(value)) if value > 0 else 0
        is_on_a_bound = value > 0 and math.isclose(value, 2.0 ** (nearest / PER_OCTAVE), rel_tol=1e-12)
        if value <= ZERO_S:
            assert bucket <= bucket_of(ZERO_S)
        elif is_on_a_bound:  # which of its two buckets has it depends on the last digit
            assert bucket in (nearest, nearest + 1)
        else:
            assert bucket == bucket_of(value)


def test_what_takes_longer_than_any_bucket_is_in_the_last() -> None:
    histogram = Histogram()
    histogram.observe(1e9)
    assert classic(histogram.cells) == [0] * BUCKETS + [1]
    assert max(native(histogram.cells)) == bucket_of(UNIT_S * 2 ** (OCTAVES - 1 - BELOW))


def test_an_exemplar_stands_at_the_bucket_of_its_observation() -> None:
    registry = CollectorRegistry()
    times = Histograms("kafka_mesh_eating_seconds", "How long it took.", "kind", registry).of("apples")
    for value in (0.00003, UNIT_S, 0.3, 100.0):
        times.observe(value)
        times.name(value, {"trace_id": "a"})
    (family,) = registry.collect()
    named = [sample for sample in family.samples if sample.exemplar]
    assert [sample.labels["le"] for sample in named] == ["5e-05", "0.4096", "+Inf"]
    for sample in named:
        assert sample.exemplar is not None
        assert sample.exemplar.value <= float(sample.labels["le"])
