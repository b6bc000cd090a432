"""Native histograms: buckets, their bound, and how the protobuf format writes them beside everything else."""

import math
import random
from itertools import accumulate

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Info, Summary
from prometheus_client.core import Metric

from mesh.exposition.histograms import Histogram
from mesh.exposition.native import MOST_BUCKETS, SCHEMA, ZERO_S, bucket_of, native_sample
from mesh.exposition.protobuf import written
from mesh.rpc.prometheus import metrics_pb2 as pb
from tests.fixtures.exposition import families_in

EXEMPLAR = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}


def buckets_of(histogram: pb.Histogram) -> dict[int, int]:
    """Counts by bucket, decoded as the specification says."""
    numbers: list[int] = []
    at = 0
    for span in histogram.positive_span:
        at += span.offset
        numbers += range(at, at + span.length)
        at += span.length
    return dict(zip(numbers, accumulate(histogram.positive_delta), strict=True))


def end_of(bucket: int, schema: int) -> float:
    return float(2.0 ** (bucket * 2.0**-schema))


@pytest.mark.parametrize("value", [ZERO_S * 1.001, 0.00003, 0.25, 0.2500001, 0.5, 0.77, 1.0, 1.09, 3.0, 1000.0])
def test_an_observation_is_in_the_bucket_that_ends_at_it_or_behind_it(value: float) -> None:
    bucket = bucket_of(value)
    assert end_of(bucket - 1, SCHEMA) < value <= end_of(bucket, SCHEMA)


def test_each_observation_is_in_its_bucket_and_the_sum_is_theirs() -> None:
    registry = CollectorRegistry()
    seconds = Histogram("kafka_mesh_eating_seconds", "How long it took.", ["kind"], registry=registry)
    chance = random.Random(7)
    values = [chance.lognormvariate(-5, 1) for _ in range(1000)] + [0.0, ZERO_S, -1e-9]
    for value in values:
        seconds.labels("apples").observe(value)
    (metric,) = families_in(written(registry.collect()))["kafka_mesh_eating_seconds"].metric
    told = metric.histogram
    assert [(label.name, label.value) for label in metric.label] == [("kind", "apples")]
    assert (told.zero_count, told.zero_threshold, told.schema) == (3, ZERO_S, SCHEMA)
    assert told.sample_count == told.zero_count + sum(buckets_of(told).values()) == len(values)
    assert math.isclose(told.sample_sum, sum(values))
    for bucket, count in buckets_of(told).items():
        low, high = end_of(bucket - 1, SCHEMA), end_of(bucket, SCHEMA)
        assert count == sum(low < value <= high for value in values)
    assert told.bucket[-1].cumulative_count == len(values)
    assert told.bucket[-1].upper_bound == math.inf


def test_more_buckets_than_the_bound_are_merged_by_pairs() -> None:
    counts = dict.fromkeys(range(-100, 2 * MOST_BUCKETS), 1)
    sample = native_sample("x", {}, counts, 1.0)
    native = sample.native_histogram
    assert native is not None
    assert native.schema == SCHEMA - 2
    told = pb.Histogram()
    for span in native.pos_spans or ():
        told.positive_span.add(offset=span.offset, length=span.length)
    told.positive_delta.extend(native.pos_deltas or ())
    merged = buckets_of(told)
    assert len(merged) <= MOST_BUCKETS
    assert sum(merged.values()) == len(counts)
    for bucket, count in merged.items():
        low, high = end_of(bucket - 1, native.schema), end_of(bucket, native.schema)
        assert count == sum(low < end_of(old, SCHEMA) * 0.999 <= high for old in counts)


def test_small_gaps_are_filled_and_large_gaps_begin_a_span() -> None:
    native = native_sample("x", {}, {1: 5, 4: 2, 10: 3}, 1.0).native_histogram
    assert native is not None
    assert [tuple(span) for span in native.pos_spans or ()] == [(1, 4), (5, 1)]
    assert native.pos_deltas == [5, -5, 0, 2, 1]


def test_exemplars_go_along() -> None:
    registry = CollectorRegistry()
    seconds = Histogram("kafka_mesh_eating_seconds", "How long it took.", registry=registry)
    seconds.observe(0.3, EXEMPLAR)
    (metric,) = families_in(written(registry.collect()))["kafka_mesh_eating_seconds"].metric
    (exemplar,) = metric.histogram.exemplars
    assert {label.name: label.value for label in exemplar.label} == EXEMPLAR
    assert exemplar.value == 0.3
    assert exemplar.timestamp.seconds > 0


def test_other_families_say_what_the_text_says() -> None:
    registry = CollectorRegistry()
    Counter("kafka_mesh_eaten", "Fruit.", ["kind"], registry=registry).labels('a"b').inc(3)
    Gauge("kafka_mesh_fruit", "Fruit.", registry=registry).set(2)
    Info("kafka_mesh_build", "Version.", registry=registry).info({"version": "1"})
    Summary("kafka_mesh_bites", "Bites.", registry=registry).observe(4)
    found = families_in(written(registry.collect()))
    eaten = found["kafka_mesh_eaten_total"]
    assert (eaten.type, eaten.help, eaten.metric[0].counter.value) == (pb.COUNTER, "Fruit.", 3)
    assert [(each.name, each.value) for each in eaten.metric[0].label] == [("kind", 'a"b')]
    assert eaten.metric[0].counter.HasField("created_timestamp")
    assert found["kafka_mesh_fruit"].metric[0].gauge.value == 2
    assert found["kafka_mesh_build_info"].metric[0].label[0].value == "1"
    bites = found["kafka_mesh_bites"].metric[0].summary
    assert (bites.sample_count, bites.sample_sum) == (1, 4)
    assert set(found) == {"kafka_mesh_eaten_total", "kafka_mesh_fruit", "kafka_mesh_build_info", "kafka_mesh_bites"}


def test_a_family_of_another_type_becomes_series_without_a_type() -> None:
    family = Metric("kafka_mesh_odd", "Odd.", "gaugehistogram")
    family.add_sample("kafka_mesh_odd_bucket", {"le": "1.0"}, 2)
    family.add_sample("kafka_mesh_odd_bucket", {"le": "+Inf"}, 3)
    family.add_sample("kafka_mesh_odd_gcount", {}, 3)
    found = families_in(written([family]))
    assert [each.untyped.value for each in found["kafka_mesh_odd_bucket"].metric] == [2, 3]
    assert found["kafka_mesh_odd_gcount"].type == pb.UNTYPED
