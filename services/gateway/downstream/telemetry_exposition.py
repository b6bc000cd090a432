"""Clients' own metrics at /metrics: one family for each name, one series for each client and set of attributes.

The names are the clients' (`org.apache.kafka.producer.connection.count` of Java, say), in Prometheus' letters and with
our prefix. A family has no type: clients need not agree on one, and a clash would spoil a whole scrape.
"""

import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.registry import Collector

from services.gateway.requests.telemetry.clients import SeriesKey, Telemetry, TelemetryClient

PREFIX: Final = "kafka_mesh_client_"
COMMON: Final = "org.apache.kafka."
"""How nearly all names begin; left out."""
OWN_LABELS: Final = ("client_id", "client_instance", "software", "software_version")
UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_]+")


class TelemetryCollector(Collector):
    """Read by the management thread: takes what is there, and changes nothing."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        telemetry = self._telemetry
        now = time.monotonic()
        clients = {
            instance: client
            for instance, client in telemetry.by_instance.items()
            if client.series and not telemetry.is_silent(client, now)
        }
        yield _clients(len(clients))
        yield from _counters(telemetry)
        yield from _families(clients)


def _clients(count: int) -> Metric:
    name = "kafka_mesh_gateway_telemetry_clients"
    return GaugeMetricFamily(name, "Clients whose own metrics are shown below as kafka_mesh_client_*.", value=count)


def _counters(telemetry: Telemetry) -> Iterator[Metric]:
    pushes = CounterMetricFamily(
        "kafka_mesh_gateway_telemetry_pushes", "Pushes of clients' metrics by outcome.", labels=["outcome"]
    )
    pushes.add_metric(["taken"], telemetry.pushes)
    pushes.add_metric(["refused"], telemetry.refused_pushes)
    yield pushes
    dropped = "Series of clients that were given up because one client had too many."
    yield CounterMetricFamily("kafka_mesh_gateway_telemetry_dropped_series", dropped, value=telemetry.dropped_series)


def _families(clients: dict[bytes, TelemetryClient]) -> Iterator[Metric]:
    families: dict[str, Metric] = {}
    shown: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for instance, client in clients.items():
        own = _own_labels(instance, client)
        for key, value in client.series.items():
            name = family_name(key.name)
            labels = _labels(key, own)
            identity = (name, tuple(sorted(labels.items())))
            if identity in shown:
                continue  # two names or attributes that differ in unsafe letters alone
            shown.add(identity)
            family = families.get(name)
            if family is None:
                family = families[name] = UnknownMetricFamily(name, f"{key.name} of clients (KIP-714).")
            family.add_sample(name, labels, value)
    yield from families.values()


def family_name(name: str) -> str:
    """Prometheus' name for a client's metric."""
    return PREFIX + (UNSAFE.sub("_", name.removeprefix(COMMON)).strip("_").lower() or "unnamed")


def _own_labels(instance: bytes, client: TelemetryClient) -> dict[str, str]:
    shown = urlsafe_b64encode(instance).decode().rstrip("=")
    return dict(zip(OWN_LABELS, (client.client_id, shown, client.software_name, client.software_version), strict=True))


def _labels(key: SeriesKey, own: dict[str, str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for attribute, value in key.attributes:
        name = UNSAFE.sub("_", attribute).strip("_").lower() or "unnamed"
        labels["_" + name if name[0].isdecimal() else name] = value
    return {**labels, **own}
