"""Writes the tables of docs/reference/*-metrics.md from the metrics that the code of each service defines.

`make reference` runs this program. A test fails if a page differs from the code.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, Metric

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"
SERVICES = ("gateway", "control", "router", "sidecar", "pipeline")
PREFIX = "kafka_mesh_"
BEGIN, END = "<!-- from the code, by `make reference` -->", "<!-- end of that table -->"


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
            return frozenset(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return frozenset({self.name})


def metrics(service: str) -> list[Described]:
    """All metrics of a service, by name. Imports the modules of the service that define metrics."""
    registries = {REGISTRY}
    for file in sorted((ROOT / "services" / service).rglob("*.py")):
        if "compiled" in file.parts or not re.search(r"prometheus_client|TrafficMetrics\(", file.read_text("utf-8")):
            continue
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        registries |= {each for each in vars(module).values() if isinstance(each, CollectorRegistry)}
    found = {each for registry in registries for each in _described(registry)} | set(_of_a_process(service))
    return sorted(each for each in found if each.name.startswith(f"{PREFIX}{service}_"))


def table(service: str) -> str:
    """The rows of a page: a metric without its prefix, its labels, its type, its meaning."""
    rows = [
        f"| `{each.name.removeprefix(f'{PREFIX}{service}_')}` | {', '.join(f'`{label}`' for label in each.labels)} "
        f"| {each.type} | {each.meaning.replace('|', chr(92) + '|')} |"
        for each in metrics(service)
    ]
    return "\n".join(["| metric | labels | type | meaning |", "| --- | --- | --- | --- |", *rows])


def page(service: str) -> Path:
    return PAGES / f"{service}-metrics.md"


def written(service: str) -> str:
    """The page with the table that the code gives. ValueError if the page has no place for the table."""
    text = page(service).read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page(service)} has no lines {BEGIN!r} and {END!r}; put them where the table belongs")
    return f"{before}{BEGIN}\n\n{table(service)}\n\n{END}{after}"


def _described(registry: CollectorRegistry) -> Iterator[Described]:
    for collector in list(registry._collector_to_names):  # no public way to a metric without samples
        families = collector.collect()
        labels = tuple(getattr(collector, "_labelnames", ()))
        yield from (_one(family, labels) for family in families)


def _of_a_process(service: str) -> Iterable[Described]:
    """Metrics of collectors that a process makes at its start."""
    if service != "gateway":
        return ()
    telemetry = importlib.import_module("services.gateway.downstream.telemetry_exposition")
    clients = importlib.import_module("services.gateway.requests.telemetry.clients")
    return [_one(family, ()) for family in telemetry.TelemetryCollector(clients.Telemetry()).collect()]


def _one(family: Metric, labels: tuple[str, ...]) -> Described:
    labels = labels or tuple(getattr(family, "_labelnames", ()) or ())
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    return Described(family.name + suffix, family.type, labels, family.documentation)


def main() -> None:
    for service in SERVICES:
        page(service).write_text(written(service), encoding="utf-8")


if __name__ == "__main__":
    main()
