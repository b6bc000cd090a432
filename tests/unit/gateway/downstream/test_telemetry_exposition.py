"""Clients' metrics at /metrics: names and labels that Prometheus takes, whatever clients call things."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from services.gateway.downstream.telemetry_exposition import TelemetryCollector, family_name
from services.gateway.requests.telemetry.clients import Subscription, Telemetry
from services.gateway.requests.telemetry.otlp import Point


def told(*points: Point, telemetry: Telemetry | None = None) -> Telemetry:
    """One client has pushed these."""
    telemetry = telemetry or Telemetry()
    client = telemetry.client(bytes(16), time.monotonic())
    client.client_id, client.software_name, client.software_version = "seller", "librdkafka", "2.16.0"
    client.take(points)
    return telemetry


def exposed(telemetry: Telemetry) -> dict[str, list[dict[str, str]]]:
    """Family -> labels of its series, as a scraper of OpenMetrics reads them."""
    registry = CollectorRegistry()
    registry.register(TelemetryCollector(telemetry))
    read: Any = text_string_to_metric_families
    written: Any = generate_latest
    families = read(written(registry).decode())
    return {family.name: [sample.labels for sample in family.samples] for family in families}


def test_a_series_says_whose_it_is() -> None:
    point = Point("org.apache.kafka.producer.connection.count", (("node.id", "7"),), 1.0, False)
    assert exposed(told(point))["kafka_mesh_client_producer_connection_count"] == [
        {
            "client_id": "seller",
            "client_instance": "A" * 22,
            "node_id": "7",
            "software": "librdkafka",
            "software_version": "2.16.0",
        }
    ]


def test_names_are_made_safe() -> None:
    assert family_name("Réc ord/s.total") == "kafka_mesh_client_r_c_ord_s_total"
    assert family_name("...") == "kafka_mesh_client_unnamed"


def test_names_that_differ_in_unsafe_letters_alone_are_shown_once() -> None:
    points = [Point("a.b", (), 1.0, False), Point("a_b", (), 2.0, False), Point("a.total", (), 1.0, True)]
    assert len(exposed(told(*points))["kafka_mesh_client_a_b"]) == 1


def test_attributes_do_not_pass_for_our_own_labels() -> None:
    attributes = (("client_id", "other"), ("7", "x"), ("quote", 'a"b\n'))
    (labels,) = exposed(told(Point("a", attributes, 1.0, False)))["kafka_mesh_client_a"]
    assert (labels["client_id"], labels["_7"], labels["quote"]) == ("seller", "x", 'a"b\n')


def test_series_that_differ_in_our_own_labels_alone_are_shown_once() -> None:
    """Two series of one name and the same labels would spoil the whole scrape, with the worker's label added too."""
    points = [Point("a", (("worker", name), ("client_id", name)), 1.0, False) for name in ("1", "2")]
    (labels,) = exposed(told(*points))["kafka_mesh_client_a"]
    assert (labels.get("worker"), labels["client_id"]) == (None, "seller")


def test_a_client_that_is_silent_is_not_shown() -> None:
    telemetry = told(Point("a", (), 1.0, False), telemetry=Telemetry(Subscription(interval_s=0.0)))
    families = exposed(telemetry)
    assert "kafka_mesh_client_a" not in families
    assert "kafka_mesh_gateway_telemetry_clients" in families
