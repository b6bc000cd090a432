"""The console's metrics. `docs/reference/console-metrics.md` lists the metrics with their meaning."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from mesh.exposition.histograms import Histogram

_PREFIX = "kafka_mesh_console_"
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds; 0.3 is what a first page may take."""

request_seconds = Histogram(
    f"{_PREFIX}request_seconds", "Time from a request to its answer, streams left out.", ["status"], buckets=_BUCKETS
)
sessions = Gauge(f"{_PREFIX}sessions", "Log-ins that have not ended.")
streams = Gauge(f"{_PREFIX}streams", "Open pages that update themselves.")
streams_refused = Counter(f"{_PREFIX}streams_refused", "Pages without updates, because too many were open.")
calls = Counter(f"{_PREFIX}calls", "Calls to control, by gRPC code.", ["code"])
reads = Gauge(f"{_PREFIX}reads", "Reads of the records of a topic that are under way.")
tails = Gauge(f"{_PREFIX}tails", "Open pages that follow the records of a topic.")
records_refused = Counter(f"{_PREFIX}records_refused", "Reads and tails refused, because too many were under way.")
schemas = Gauge(f"{_PREFIX}schemas", "Schemas of the registry that the console keeps.")
schema_questions = Counter(
    f"{_PREFIX}schema_questions", "Questions to the schema registry: found, unusable or away.", ["outcome"]
)
records_read = Counter(f"{_PREFIX}records_read", "Records that viewers' reads have taken from the gateway.")
