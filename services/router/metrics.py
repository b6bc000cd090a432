"""What the router counts. README.md lists these with their meaning."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_PREFIX = "kafka_mesh_router_"
_LATENCY_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; 0.25 is what a new revision may take to reach every gateway."""

revision = Gauge(f"{_PREFIX}revision", "Revision of the table in force.")
pending_revision = Gauge(f"{_PREFIX}pending_revision", "Revision that is being rolled out; 0 when none is.")
position = Gauge(f"{_PREFIX}position", "Position of the last event that was folded.")
lag = Gauge(f"{_PREFIX}lag_events", "Records between the last one folded and the end of the log at the last fetch.")
silence = Gauge(f"{_PREFIX}home_silence_seconds", "Since the home cluster last answered; it does twice a second.")
readings_ended = Counter(f"{_PREFIX}readings_ended", "Readings of the log that ended in an error.", ["error"])
members = Gauge(f"{_PREFIX}members", "Connected data planes by phase.", ["phase"])
orders = Counter(f"{_PREFIX}orders", "Orders sent to data planes.", ["order"])
refusals = Counter(f"{_PREFIX}refusals", "Orders that data planes refused.")
push_latency = Histogram(
    f"{_PREFIX}push_latency_seconds",
    "From the decision to a data plane's answer.",
    ["answer"],
    buckets=_LATENCY_BUCKETS,
)
outbox = Gauge(f"{_PREFIX}outbox_orders", "Orders that wait to be written to data planes, all together.")
watches_ended = Counter(f"{_PREFIX}watches_ended", "Watches that the router ended.", ["reason"])
control_connected = Gauge(f"{_PREFIX}control_connected", "1 while control takes this router's reports.")
