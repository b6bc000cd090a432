"""Metrics as InfluxDB's line protocol."""

import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from services.sidecar.telemetry import metrics
from services.sidecar.telemetry.influx import InfluxPush, lines


def test_each_sample_is_a_line_with_its_tags_and_time() -> None:
    registry = CollectorRegistry()
    requests = Counter("kafka_mesh_sidecar_requests_total", "-", ["operation"], registry=registry)
    requests.labels("postData").inc(3)
    found = list(lines(registry, {"host": "a b", "api": "shop,1=x"}, 17))
    assert r"kafka_mesh_sidecar_requests_total,api=shop\,1\=x,host=a\ b,operation=postData value=3.0 17" in found


def test_what_influx_cannot_take_is_left_out() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("kafka_mesh_sidecar_lag", "-", ["topic"], registry=registry)
    gauge.labels("").set(1)
    gauge.labels("x").set(math.nan)
    gauge.labels("y").set(math.inf)
    assert list(lines(registry, {}, 17)) == ["kafka_mesh_sidecar_lag value=1.0 17"]


def test_metrics_of_other_parts_stay_here() -> None:
    registry = CollectorRegistry()
    Gauge("python_info", "-", registry=registry).set(1)
    assert list(lines(registry, {}, 17)) == []


@pytest.mark.parametrize("url", ["http://[", "http://127.0.0.1:1/write", "nowhere"])
async def test_a_push_that_fails_is_counted_and_ends_nothing(url: str) -> None:
    push = InfluxPush(url, interval_seconds=1, token="", tags={})
    failed = metrics.influx_pushes.labels("failed")
    [before] = [each.samples[0].value for each in failed.collect()]
    await push.push()
    await push.close()
    assert [each.samples[0].value for each in failed.collect()] == [before + 1]
