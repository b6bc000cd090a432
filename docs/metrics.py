"""The tables of docs/reference/*-metrics.md: the metrics that the code of each service defines."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, Metric

from docs.tables import REFERENCE, ROOT, SERVICES, filled, places, table

__all__ = ["PREFIX", "ROOT", "SERVICES", "Described", "metrics", "page", "written"]
PREFIX = "kafka_mesh_"
_DEFINES = re.compile(r"prometheus_client|mesh\.exposition|TrafficMetrics\(")


@dataclass(frozen=True, slots=True, order=True)
class Described:
    """One metric as its code describes it."""

    name: str
    """As Prometheus shows it; a histogram without `_bucket`, `_sum` and `_count`."""
    type: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def series(self) -> frozenset[str]:
        """The names that expressions of Prometheus may use."""
        if self.type == "histogram":
            return frozenset({self.name, *(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))})
        return frozenset({self.name})


def metrics(service: str) -> list[Described]:
    """All metrics of a service, by name. Imports the modules of the service that define metrics."""
    registries = {REGISTRY}
    for file in sorted((ROOT / "services" / service).rglob("*.py")):
        if "compiled" in file.parts or not re.search(
            r"prometheus_client|mesh\.exposition|TrafficMetrics\(", file.read_text("utf-8")
        ):
            continue
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        registries |= {each for each in vars(module).values() if isinstance(each, CollectorRegistry)}
    found = {each for registry in registries for each in _described(registry)} | set(_of_a_process(service))
    return sorted(each for each in found if each.name.startswith(f"{PREFIX}{service}_"))


def page(service: str) -> Path:
    return REFERENCE / f"{service}-metrics.md"


def written(service: str) -> str:
    """The page with the table that the code gives. ValueError if the page has no place for the table."""
    prefix = f"{PREFIX}{service}_"
    rows = [
        (
            f"`{each.name.removeprefix(prefix)}`",
            ", ".join(f"`{label}`" for label in each.labels),
            each.type,
            each.meaning,
        )
        for each in metrics(service)
    ]
    return filled(
        page(service), dict.fromkeys(places(page(service)), table(("metric", "labels", "type", "meaning"), rows))
    )


def _described(registry: CollectorRegistry) -> Iterator[Described]:
    for collector in list(registry._collector_to_names):  # no public way to a metric without samples
        families = collector.collect()
        labels = tuple(getattr(collector, "_labelnames", ()))
        yield from (_one(family, labels) for family in families)


def _of_a_process(service: str) -> Iterable[Described]:
    """Metrics of collectors that a process makes at its start."""
    if service != "gateway":
        return ()
    room = "services.gateway.downstream"
    telemetry = importlib.import_module(f"{room}.telemetry_exposition")
    clients = importlib.import_module("services.gateway.requests.telemetry.clients")
    figures = importlib.import_module(f"{room}.client_figures")
    collectors = (telemetry.TelemetryCollector(clients.Telemetry()), figures.ClientFigures(list))
    return [_one(family, ()) for collector in collectors for family in collector.collect()]


def _one(family: Metric, labels: tuple[str, ...]) -> Described:
    labels = labels or tuple(getattr(family, "_labelnames", ()) or ())
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    return Described(family.name + suffix, family.type, labels, family.documentation)
