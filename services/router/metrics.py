"""The router's metrics. `docs/reference/router-metrics.md` lists the metrics with their meaning."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from mesh.exposition.histograms import Histogram
from mesh.tracing.metrics import TracingMetrics

_PREFIX = "kafka_mesh_router_"
_LATENCY_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; 0.25 is what a new revision may take to reach every gateway."""

revision = Gauge(f"{_PREFIX}revision", "Revision of the table in force.")
pending_revision = Gauge(f"{_PREFIX}pending_revision", "Revision that is being rolled out; 0 when none is.")
position = Gauge(f"{_PREFIX}position", "Position of the last event that was folded.")
changed_at = Gauge(
    f"{_PREFIX}log_changed_at", "Position of the first event that somebody changed; 0 while none is known."
)
unsigned = Gauge(
    f"{_PREFIX}log_unsigned_events", "Events at the end of the log that control has not signed, so they do not count."
)
refused_records = Counter(
    f"{_PREFIX}log_refused_records", "Records of the log that are no event of control, so they do not count."
)
lag = Gauge(f"{_PREFIX}lag_events", "Records between the last one folded and the end of the log at the last fetch.")
silence = Gauge(
    f"{_PREFIX}home_silence_seconds", "Seconds since the home cluster last answered; it answers twice a second."
)
readings_ended = Counter(f"{_PREFIX}readings_ended", "Readings of the log that ended in an error.", ["error"])
snapshot_position = Gauge(
    f"{_PREFIX}snapshot_position", "Position of the newest snapshot that this router knows of; 0 for none."
)
snapshot_age = Gauge(f"{_PREFIX}snapshot_age_seconds", "Seconds since the newest snapshot was made; 0 for none.")
snapshots_written = Counter(f"{_PREFIX}snapshots_written", "Snapshots that this router wrote.")
snapshot_failures = Counter(f"{_PREFIX}snapshot_failures", "Attempts to read or write snapshots that failed.", ["what"])
caught_up_after = Gauge(
    f"{_PREFIX}caught_up_after_seconds",
    "Seconds that the last reading needed to reach the end of the log, snapshot included.",
)
members = Gauge(f"{_PREFIX}members", "Connected data planes by phase: applied, held, refused, none.", ["phase"])
orders = Counter(f"{_PREFIX}orders", "Orders sent to data planes.", ["order"])
refusals = Counter(f"{_PREFIX}refusals", "Orders that data planes refused.")
push_latency = Histogram(
    f"{_PREFIX}push_latency_seconds",
    "Time from the decision to a data plane's answer.",
    ["answer"],
    buckets=_LATENCY_BUCKETS,
)
table_bytes = Counter(
    f"{_PREFIX}table_bytes",
    "Bytes of tables sent to data planes: as a whole (table), or as the differences from the table before (delta).",
    ["form"],
)
outbox = Gauge(f"{_PREFIX}outbox_orders", "Orders that wait to be written to data planes, all together.")
watches_ended = Counter(
    f"{_PREFIX}watches_ended", "Streams that the router ended: slow, protocol, replaced, stopping.", ["reason"]
)
refused_calls = Counter(f"{_PREFIX}refused_calls", "Calls refused because of the caller's certificate.", ["method"])
control_connected = Gauge(f"{_PREFIX}control_connected", "1 while control takes this router's reports.")
users = Gauge(f"{_PREFIX}users", "Users with passwords whose verifiers control has sent.")
users_age = Gauge(f"{_PREFIX}users_age_seconds", "Seconds since control has confirmed them; 0 before the first time.")
record_partitions = Gauge(
    f"{_PREFIX}record_rule_partitions", "Partitions of the work topic, of 16, that this router has."
)
record_memberships_ended = Counter(
    f"{_PREFIX}record_rule_memberships_ended", "Memberships in the group of record rules that ended in an error."
)
record_workers_ended = Counter(f"{_PREFIX}record_rule_workers_ended", "Worker processes that ended without a request.")
record_rule_lag = Gauge(f"{_PREFIX}record_rule_lag_records", "Records that a rule has not read yet.", ["rule"])
record_rule_records = Gauge(
    f"{_PREFIX}record_rule_records",
    "Records written, filtered and dead since the rule's worker began.",
    ["rule", "outcome"],
)
record_rule_problem = Gauge(f"{_PREFIX}record_rule_problem", "1 while a rule does not run.", ["rule"])
record_rule_heartbeat = Gauge(
    f"{_PREFIX}record_rule_heartbeat_age_seconds",
    "Seconds since the worker last reported a rule; it reports each second.",
    ["rule"],
)
mesh_record_rules = Gauge(f"{_PREFIX}mesh_record_rules", "Record rules of the mesh that some router has reported.")
mesh_record_rule_lag = Gauge(
    f"{_PREFIX}mesh_record_rule_lag_records",
    "Records that a rule has not read yet, as its router said last. Every router shows the same.",
    ["rule", "router"],
)
mesh_record_rule_problem = Gauge(
    f"{_PREFIX}mesh_record_rule_problem",
    "1 while a rule does not run, as its router said last. Every router shows the same.",
    ["rule", "router"],
)
mesh_record_rule_age = Gauge(
    f"{_PREFIX}mesh_record_rule_age_seconds", "Seconds since the router of a rule reported.", ["rule", "router"]
)
progress_applications_ended = Counter(
    f"{_PREFIX}progress_applications_ended", "Faust applications that ended without a request."
)


tracing = TracingMetrics("router")
_SAID_BY_WORKERS = {
    "record_rule_been_there": "Records not copied, because they had been on the target before; since the worker began.",
    "record_rule_bytes": "Bytes of values written since the worker began.",
    "record_rule_commit_age_seconds": "Since the last transaction of a rule.",
    "record_rule_groups_in_use": "Groups with members on the target, which get no offsets there.",
    "record_rule_setbacks": "Sessions of a rule that ended in an error; since the worker began.",
    "record_rule_source_silence_seconds": "Since the source of a rule last answered.",
    "record_rule_transactions": "Transactions committed since the worker began.",
}
record_rule_counts = {name: Gauge(f"{_PREFIX}{name}", meaning, ["rule"]) for name, meaning in _SAID_BY_WORKERS.items()}
"""By the names that workers give to their counts."""
