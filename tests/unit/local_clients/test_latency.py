"""The histogram: percentiles near the truth, in fixed memory."""

from __future__ import annotations

import random

import pytest

from local.latency import Histogram

WORST_ERROR = 0.016


def filled(*seconds: float) -> Histogram:
    histogram = Histogram()
    for each in seconds:
        histogram.record(each)
    return histogram


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert Histogram().percentiles() is None


@pytest.mark.parametrize("scale", [0.0001, 0.01, 1.0, 100.0])
def test_percentiles_are_near_the_exact_ones_at_every_scale(scale: float) -> None:
    chance = random.Random(7)
    values = sorted(chance.random() * scale for _ in range(5000))
    found = filled(*values).percentiles()
    assert found is not None
    for share, value in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99), (0.999, found.p999)):
        exact = values[int(share * len(values)) - 1] * 1000
        assert value == pytest.approx(exact, rel=WORST_ERROR, abs=0.001)
    assert found.max == pytest.approx(values[-1] * 1000, abs=0.001)
    assert found.mean == pytest.approx(sum(values) / len(values) * 1000, rel=WORST_ERROR)


def test_no_value_is_too_small_or_too_large() -> None:
    found = filled(-1.0, 0.0, 1e9).percentiles()
    assert found is not None
    assert (found.p50, found.max) == (0.0, (2**36 - 1) / 1000)


def test_histograms_of_several_threads_merge() -> None:
    merged = Histogram.merged([filled(0.001, 0.002), filled(0.009)])
    found = merged.percentiles()
    assert found is not None
    assert (merged.count, found.max) == (3, 9.0)


def test_what_came_since_a_copy_has_percentiles_of_its_own() -> None:
    histogram = filled(1.0, 1.0)
    before = Histogram.merged([histogram])
    histogram.record(0.005)
    recent = histogram.since(before)
    found = recent.percentiles()
    assert found is not None
    assert recent.count == 1
    assert found.max == pytest.approx(5.0, rel=WORST_ERROR)
    assert histogram.since(Histogram.merged([histogram])).percentiles() is None
