"""Metrics as InfluxDB's line protocol."""

import math

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.sidecar.influx import lines


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
