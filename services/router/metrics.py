"""The router's metrics. `docs/reference/router-metrics.md` lists the metrics with their meaning."""

from __future__ import annotations

from functools import cache

from prometheus_client import Counter, Gauge, Histogram

_PREFIX = "kafka_mesh_router_"
_LATENCY_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; 0.25 is what a new revision may take to reach every gateway."""

revision = Gauge(f"{_PREFIX}revision", "Revision of the table in force.")
pending_revision = Gauge(f"{_PREFIX}pending_revision", "Revision that is being rolled out; 0 when none is.")
position = Gauge(f"{_PREFIX}position", "Position of the last event that was folded.")
changed_at = Gauge(
    f"{_PREFIX}log_changed_at", "Position of the first event that is not what the next one says; 0 while all are."
)
lag = Gauge(f"{_PREFIX}lag_events", "Records between the last one folded and the end of the log at the last fetch.")
silence = Gauge(f"{_PREFIX}home_silence_seconds", "Since the home cluster last answered; it does twice a second.")
readings_ended = Counter(f"{_PREFIX}readings_ended", "Readings of the log that ended in an error.", ["error"])
snapshot_position = Gauge(
    f"{_PREFIX}snapshot_position", "Position of the newest snapshot that this router knows of; 0 for none."
)
snapshot_age = Gauge(f"{_PREFIX}snapshot_age_seconds", "Since that snapshot was made; 0 for none.")
snapshots_written = Counter(f"{_PREFIX}snapshots_written", "Snapshots that this router wrote.")
snapshot_failures = Counter(f"{_PREFIX}snapshot_failures", "Attempts to read or write snapshots that failed.", ["what"])
caught_up_after = Gauge(f"{_PREFIX}caught_up_after_seconds", "What the last reading took to reach the end of the log.")
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
refused_calls = Counter(f"{_PREFIX}refused_calls", "Calls refused because of the caller's certificate.", ["method"])
control_connected = Gauge(f"{_PREFIX}control_connected", "1 while control takes this router's reports.")
record_partitions = Gauge(f"{_PREFIX}record_rule_partitions", "Of the work topic: this router's share of the rules.")
record_memberships_ended = Counter(
    f"{_PREFIX}record_rule_memberships_ended", "Memberships in the group of record rules that ended in an error."
)
record_workers_ended = Counter(f"{_PREFIX}record_rule_workers_ended", "Worker processes that ended unasked.")
record_rule_lag = Gauge(f"{_PREFIX}record_rule_lag_records", "Records that a rule has not read yet.", ["rule"])
record_rule_records = Gauge(
    f"{_PREFIX}record_rule_records", "What became of records since the rule's worker began.", ["rule", "outcome"]
)
record_rule_problem = Gauge(f"{_PREFIX}record_rule_problem", "1 while a rule does not go on.", ["rule"])
record_rule_heartbeat = Gauge(
    f"{_PREFIX}record_rule_heartbeat_age_seconds",
    "Since the worker last spoke of a rule; it does once a second.",
    ["rule"],
)
mesh_record_rules = Gauge(f"{_PREFIX}mesh_record_rules", "Rules of which some router has said how far they are.")
mesh_record_rule_lag = Gauge(
    f"{_PREFIX}mesh_record_rule_lag_records", "Lag of a rule, as the router that runs it said.", ["rule", "router"]
)
mesh_record_rule_problem = Gauge(
    f"{_PREFIX}mesh_record_rule_problem", "1 while a rule does not go on, as its router said.", ["rule", "router"]
)
mesh_record_rule_age = Gauge(
    f"{_PREFIX}mesh_record_rule_age_seconds", "Since the router of a rule said how far it is.", ["rule", "router"]
)
progress_applications_ended = Counter(
    f"{_PREFIX}progress_applications_ended", "Lives of the Faust application that ended unasked."
)


@cache
def record_rule_count(name: str) -> Gauge:
    """The other counters of the worker for a rule; `docs/reference/router-metrics.md` lists the names."""
    return Gauge(f"{_PREFIX}{name}", "Said by the worker of record rules.", ["rule"])
