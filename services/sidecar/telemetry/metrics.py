"""The metrics of a sidecar. Labels are bounded: never a topic, group or instance name. Subscriptions are few."""

from prometheus_client import Counter, Gauge

from mesh.exposition.histograms import Histogram
from mesh.tracing.metrics import TracingMetrics
from mesh.traffic.metrics import TrafficMetrics

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

requests = Counter("kafka_mesh_sidecar_requests_total", "HTTP requests answered.", ["operation", "status"])
request_seconds = Histogram(
    "kafka_mesh_sidecar_request_duration_seconds",
    "From a request's head to the end of its answer.",
    ["operation"],
    buckets=_SECONDS,
)
open_requests = Gauge("kafka_mesh_sidecar_open_requests", "HTTP requests that are being served.")
open_calls = Gauge("kafka_mesh_sidecar_open_calls", "HTTP requests that are being served, by what they do.", ["kind"])
open_body_bytes = Gauge("kafka_mesh_sidecar_open_body_bytes", "Bodies of HTTP requests that are being served.")
connections = Gauge("kafka_mesh_sidecar_connections", "Connections of callers.")
refused_calls = Counter(
    "kafka_mesh_sidecar_refused_calls_total",
    "Calls turned away before they were served: for want of a valid token or a scope, or at a bound.",
    ["reason"],
)
remembered_tokens = Gauge(
    "kafka_mesh_sidecar_remembered_tokens", "Verified tokens that are not verified again at once."
)
token_key_requests = Counter(
    "kafka_mesh_sidecar_token_key_requests_total", "Requests to issuers of tokens for their keys.", ["outcome"]
)

produced_records = Counter(
    "kafka_mesh_sidecar_produced_records_total", "Records given to Kafka, by how it went.", ["outcome"]
)
produced_bytes = Counter("kafka_mesh_sidecar_produced_bytes_total", "Keys and values of records given to Kafka.")
delivery_seconds = Histogram(
    "kafka_mesh_sidecar_delivery_duration_seconds",
    "From a batch's admission to its last acknowledgement.",
    buckets=_SECONDS,
)
queued_records = Gauge("kafka_mesh_sidecar_queued_records", "Records that wait for their acknowledgement.")
queued_bytes = Gauge(
    "kafka_mesh_sidecar_queued_bytes", "Keys and values of records that wait for their acknowledgement."
)
waiting_batches = Gauge("kafka_mesh_sidecar_waiting_batches", "Produce requests that wait for room in the queue.")
turned_away = Counter(
    "kafka_mesh_sidecar_turned_away_batches_total", "Produce requests refused because the queue stayed full."
)
producer_restarts = Counter("kafka_mesh_sidecar_producer_restarts_total", "Producers replaced after a fatal error.")

transactions = Counter("kafka_mesh_sidecar_transactions_total", "Transactions, by how they ended.", ["outcome"])
transaction_seconds = Histogram(
    "kafka_mesh_sidecar_transaction_duration_seconds", "From a transaction's turn to its end.", buckets=_SECONDS
)
waiting_transactions = Gauge("kafka_mesh_sidecar_waiting_transactions", "Transactions that run or wait for their turn.")
kept_answers = Gauge("kafka_mesh_sidecar_kept_answers", "First answers kept for requests that come again.")
replayed_answers = Counter(
    "kafka_mesh_sidecar_replayed_answers_total", "Requests that got the first answer to an earlier one."
)
async_failures = Counter(
    "kafka_mesh_sidecar_async_failed_records_total", "Records that failed after their request was answered."
)
written_audits = Counter(
    "kafka_mesh_sidecar_written_audit_records_total", "Audit records given to their target.", ["target"]
)
lost_audits = Counter(
    "kafka_mesh_sidecar_lost_audit_records_total", "Audit records that their target does not have.", ["target"]
)
queued_audits = Gauge(
    "kafka_mesh_sidecar_queued_audit_records", "Audit records that wait for their target.", ["target"]
)
queued_audit_bytes = Gauge(
    "kafka_mesh_sidecar_queued_audit_bytes", "Bytes of audit records that wait for their target.", ["target"]
)
audit_waits = Counter("kafka_mesh_sidecar_audit_waits_total", "How often work waited for room in the audit trail.")
produce_streams = Gauge("kafka_mesh_sidecar_produce_streams", "Produce requests that send line by line.")

consumed_records = Counter("kafka_mesh_sidecar_consumed_records_total", "Records handed to the backend.")
consumed_bytes = Counter("kafka_mesh_sidecar_consumed_bytes_total", "Keys and values of records handed to the backend.")
instances = Gauge("kafka_mesh_sidecar_instances", "Consumer instances held.")
instance_ends = Counter("kafka_mesh_sidecar_instance_ends_total", "Consumer instances closed, by cause.", ["cause"])
instance_queue = Gauge("kafka_mesh_sidecar_instance_queue_calls", "Calls that wait for their consumer instance.")
untold_headers = Counter(
    "kafka_mesh_sidecar_untold_headers_total", "Records whose headers Kafka's client could not tell."
)
rebalances = Counter("kafka_mesh_sidecar_rebalances_total", "Partitions given to or taken from an instance.", ["kind"])
starts_asked_again = Counter(
    "kafka_mesh_sidecar_starts_asked_again_total",
    "Times that Kafka could not say where a group goes on, and was asked again.",
)
commit_failures = Counter("kafka_mesh_sidecar_commit_failures_total", "Commits that Kafka refused.")
client_errors = Counter("kafka_mesh_sidecar_client_errors_total", "Errors that Kafka clients reported.", ["client"])

control_up = Gauge("kafka_mesh_sidecar_control_up", "1 while control hears from this sidecar.")
control_calls = Counter("kafka_mesh_sidecar_control_calls_total", "Calls to control.", ["call", "outcome"])
control_backlog = Gauge(
    "kafka_mesh_sidecar_control_backlog_instances", "Instances that control does not know of yet, or still knows of."
)

assaults = Counter("kafka_mesh_sidecar_assaults_total", "Faults on purpose that struck a request.", ["assault"])
influx_pushes = Counter(
    "kafka_mesh_sidecar_influx_pushes_total", "Pushes of metrics to InfluxDB, by outcome.", ["outcome"]
)

state_writes = Counter("kafka_mesh_sidecar_state_writes_total", "Writes of state files, by how they went.", ["outcome"])
restored_instances = Counter(
    "kafka_mesh_sidecar_restored_instances_total", "Instances there again after a start, by who knew them.", ["source"]
)
restore_seconds = Gauge(
    "kafka_mesh_sidecar_restore_duration_seconds", "How long the last start waited for instances to be there again."
)
superseded = Gauge(
    "kafka_mesh_sidecar_superseded", "1 when a younger process of this sidecar's name holds its instances."
)
orders = Counter(
    "kafka_mesh_sidecar_orders_total", "Operators' orders, by what they ask and how they went.", ["command", "outcome"]
)
open_orders = Gauge("kafka_mesh_sidecar_open_orders", "Operators' orders that are being carried out or wait for it.")

protobuf_compile_seconds = Histogram(
    "kafka_mesh_sidecar_protobuf_compile_duration_seconds",
    "How long .proto texts took to compile, with the wait for a turn.",
    buckets=_SECONDS,
)

schema_lookups = Counter(
    "kafka_mesh_sidecar_schema_lookups_total",
    "Schemas asked for, by how (id, guid, version, latest, text) and how it was answered (hit, miss, ...).",
    ["by", "outcome"],
)
schema_registry_seconds = Histogram(
    "kafka_mesh_sidecar_schema_registry_duration_seconds",
    "How long the schema registry took to answer, with further attempts.",
    ["call"],
    buckets=_SECONDS,
)
schema_registry_failures = Counter(
    "kafka_mesh_sidecar_schema_registry_failures_total",
    "Questions that the schema registry did not answer.",
    ["reason"],
)

ksqldb_up = Gauge("kafka_mesh_sidecar_ksqldb_up", "Whether the ksqlDB query is followed.")
ksqldb_restarts = Counter("kafka_mesh_sidecar_ksqldb_restarts_total", "Times that the ksqlDB query was begun again.")
ksqldb_rows = Counter(
    "kafka_mesh_sidecar_ksqldb_rows_total", "Rows of ksqlDB for the backend: taken, retried, skipped.", ["outcome"]
)

open_jobs = Gauge(
    "kafka_mesh_sidecar_open_jobs", "Replays and redrives that have not ended, by where they stand.", ["state"]
)
ended_jobs = Counter("kafka_mesh_sidecar_ended_jobs_total", "Replays and redrives that ended, by how.", ["state"])
job_records = Counter(
    "kafka_mesh_sidecar_job_records_total",
    "Records of replays and redrives: acknowledged, failed among these, and written for them.",
    ["outcome"],
)

reactive_held_records = Gauge(
    "kafka_mesh_sidecar_reactive_held_records",
    "Records read for the backend whose outcome is not in Kafka yet.",
    ["subscription"],
)
reactive_held_bytes = Gauge(
    "kafka_mesh_sidecar_reactive_held_bytes", "Keys and values of these records.", ["subscription"]
)
reactive_open_batches = Gauge(
    "kafka_mesh_sidecar_reactive_open_batches", "Batches that are delivered, wait for it, or are being settled."
)
reactive_batch_seconds = Histogram(
    "kafka_mesh_sidecar_reactive_batch_duration_seconds",
    "From taking a batch to its outcome in Kafka, with all attempts and pauses.",
    buckets=(*_SECONDS, 120, 300),
)
reactive_records = Counter(
    "kafka_mesh_sidecar_reactive_records_total", "Records read for the backend, by what became of them.", ["outcome"]
)
subscriptions = Gauge(
    "kafka_mesh_sidecar_subscriptions",
    "Subscriptions of the backend, by who declares them (settings, control, backend) and by their state.",
    ["source", "state"],
)
reactive_restarts = Counter(
    "kafka_mesh_sidecar_reactive_restarts_total", "Times that the reactive consumer's client had to be made anew."
)
backend_calls = Counter(
    "kafka_mesh_sidecar_backend_calls_total",
    "Calls that gave records to the backend, by how they ended: answered, a status, unreachable, timeout, ...",
    ["outcome"],
)
backend_call_seconds = Histogram(
    "kafka_mesh_sidecar_backend_call_duration_seconds", "How long these calls took.", buckets=(*_SECONDS, 120, 300)
)
backend_open_calls = Gauge("kafka_mesh_sidecar_backend_open_calls", "Calls that are with the backend.")
backend_retries = Counter(
    "kafka_mesh_sidecar_backend_retries_total",
    "Calls to be repeated, by whose fault it may be: the backend's, the records', unclear; answer: it says so itself.",
    ["blame"],
)
backend_circuit = Gauge(
    "kafka_mesh_sidecar_backend_circuit",
    "Whether the backend is called: 0 it is, 1 to find out if it is back, 2 not.",
    ["subscription"],
)
backend_tokens = Counter(
    "kafka_mesh_sidecar_backend_tokens_total", "Tokens asked for to call the backend.", ["outcome"]
)
undecided_records = Counter(
    "kafka_mesh_sidecar_undecided_records_total",
    "Records for which a rule of content could not be decided; they go the usual way.",
)
dead_letters = Counter("kafka_mesh_sidecar_dead_letters_total", "Records given up, by reason.", ["reason"])
settling_failures = Counter(
    "kafka_mesh_sidecar_settling_failures_total", "Failed attempts to write dead letters or replies."
)
shrunk_writes = Counter(
    "kafka_mesh_sidecar_shrunk_writes_total",
    "Dead letters or replies that were too large for Kafka and were written in a smaller form.",
)

stream_records = Counter(
    "kafka_mesh_sidecar_stream_records_total",
    "Records of topologies, by how they ended (read, written, dead_letter, skipped, late, no_key, no_match).",
    ["stream", "outcome"],
)
stream_rounds = Counter(
    "kafka_mesh_sidecar_stream_transactions_total",
    "Transactions of topologies, by how they ended.",
    ["stream", "outcome"],
)
stream_round_seconds = Histogram(
    "kafka_mesh_sidecar_stream_transaction_duration_seconds",
    "From the first record of a round to the end of its transaction.",
    ["stream"],
    buckets=_SECONDS,
)
stream_restored_records = Counter(
    "kafka_mesh_sidecar_stream_restored_records_total", "Changes read from changelogs.", ["stream"]
)
stream_restore_seconds = Histogram(
    "kafka_mesh_sidecar_stream_restore_duration_seconds",
    "From a task's assignment to its first record.",
    ["stream"],
    buckets=_SECONDS,
)
stream_tasks = Gauge("kafka_mesh_sidecar_stream_tasks", "Tasks of topologies, by state.", ["stream", "state"])
stream_lag = Gauge("kafka_mesh_sidecar_stream_lag_records", "Records that wait for a topology here.", ["stream"])
stream_state_bytes = Gauge("kafka_mesh_sidecar_stream_state_bytes", "Files of a topology's stores here.", ["stream"])

traffic = TrafficMetrics("sidecar")
tracing = TracingMetrics("sidecar")
