"""Clients' own metrics at /metrics: one family for each name, one series for each client and set of attributes.

The names are the clients' (`org.apache.kafka.producer.connection.count` of Java, say), in Prometheus' letters and with
our prefix. A family has no type: clients need not agree on one, and a clash would spoil a whole scrape.
"""

import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from services.gateway.requests.telemetry.clients import SeriesKey, Telemetry, TelemetryClient

PREFIX: Final = "kafka_mesh_client_"
COMMON: Final = "org.apache.kafka."
"""The prefix of nearly all names; it is left out."""
OWN_LABELS: Final = ("client_id", "client_instance", "software", "software_version")
RESERVED_LABELS: Final = frozenset({*OWN_LABELS, "worker"})
"""Labels that no attribute of a client may take. `worker` tells the workers apart if there are several."""
SERIES_REMEMBERED: Final = 16_384
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
    for instance, client in clients.items():
        own = _own_labels(instance, client)
        shown: set[_Place] = set()
        for key, value in client.series.items():
            place = _place(key)
            if place in shown:
                continue  # two names or attributes that differ in unsafe letters alone
            shown.add(place)
            family = families.get(place.family)
            if family is None:
                family = families[place.family] = UnknownMetricFamily(place.family, f"{key.name} of clients (KIP-714).")
            family.samples.append(Sample(place.family, {**dict(place.labels), **own}, value))
    yield from families.values()


class _Place(NamedTuple):
    """The name and labels of a client's series."""

    family: str
    labels: tuple[tuple[str, str], ...]


@lru_cache(maxsize=SERIES_REMEMBERED)
def _place(key: SeriesKey) -> _Place:
    """Clients of one kind have the same series."""
    labels = ((_label(attribute), value) for attribute, value in key.attributes)
    return _Place(family_name(key.name), tuple(label for label in labels if label[0] not in RESERVED_LABELS))


def family_name(name: str) -> str:
    """Prometheus' name for a client's metric."""
    return PREFIX + (UNSAFE.sub("_", name.removeprefix(COMMON)).strip("_").lower() or "unnamed")


def _label(attribute: str) -> str:
    name = UNSAFE.sub("_", attribute).strip("_").lower() or "unnamed"
    return f"_{name}" if name[0].isdecimal() else name


def _own_labels(instance: bytes, client: TelemetryClient) -> dict[str, str]:
    shown = urlsafe_b64encode(instance).decode().rstrip("=")
    return dict(zip(OWN_LABELS, (client.client_id, shown, client.software_name, client.software_version), strict=True))
