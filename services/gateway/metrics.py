"""The metrics of the gateway. Labels are bounded: APIs, versions, error codes, clusters, outcomes. Names of clients and
topics have a budget (`downstream.client_figures`, `mesh.traffic.metrics`, `downstream.refused`).
"""

from functools import cache

from prometheus_client import Counter, Gauge, Info

from mesh.exposition.histograms import Histogram
from mesh.tracing.metrics import TracingMetrics
from mesh.traffic.metrics import TrafficMetrics
from services.gateway.counting import Answered, Count, Counts, Histograms, Times
from services.gateway.requests.client_calls import ClientCalls
from services.gateway.wire.apis import api_name
from services.gateway.wire.errors import error_name

requests = Counts(
    "kafka_mesh_gateway_requests",
    "Requests of clients by outcome: answered, no_answer (acks 0), closed, abandoned (client gone).",
    ["api", "version", "outcome"],
)


@cache
def ended_requests(api_key: int, version: int, outcome: str = "answered") -> Count:
    """The count of `requests` for this API, version and outcome."""
    return requests.labels(api_name(api_key), str(version), outcome)


def answered_of(calls: ClientCalls, api_key: int, version: int) -> Answered:
    """The count of one client's answered requests."""
    count = calls.answered.get((api_key, version))
    if count is None:
        count = Answered(ended_requests(api_key, version), times_of(api_key))
        calls.answered[api_key, version] = count
    return count


request_gateway_seconds = Histograms(
    "kafka_mesh_gateway_request_gateway_seconds",
    "Seconds that the gateway itself spent on an answered request: from its start to its answer, without the time "
    "upstream. Waits for a hold, a pause or a conversion are part of this time. No metric has the total.",
    "api",
)
request_upstream_seconds = Histograms(
    "kafka_mesh_gateway_request_upstream_seconds",
    "Time of an answered request in which the gateway waited for clusters; for a Fetch, the wait for records too.",
    "api",
)
response_errors = Counts(
    "kafka_mesh_gateway_response_errors",
    "Answers to clients with an error code, by Kafka's name of the code. An answer counts once for each code in it.",
    ["api", "error"],
)


@cache
def times_of(api_key: int) -> Times:
    api = api_name(api_key)
    return Times(request_gateway_seconds.of(api), request_upstream_seconds.of(api))


def count_error(calls: ClientCalls, api_key: int, code: int) -> None:
    """An answer to this client has the code."""
    calls.errors[api_key, code] += 1
    response_errors.labels(api_name(api_key), error_name(code)).total += 1


refused_requests = Counter(
    "kafka_mesh_gateway_refused_requests",
    "Requests in an API or version that is not served; the connection was closed, ApiVersions alone got an answer.",
    ["api", "version"],
)
refused_operations = Counter(
    "kafka_mesh_gateway_refused_operations",
    "Operations that the ACLs of the mesh did not allow to a client; the client got an authorization error. An "
    "operation is counted once for each resource of a request.",
    ["resource_type", "operation"],
)
observed_refusals = Counter(
    "kafka_mesh_gateway_observed_refusals",
    "Operations that the ACLs of the mesh would not allow to a client, if they were enforced (mode `observe`).",
    ["resource_type", "operation"],
)
refused_records = Counter(
    "kafka_mesh_gateway_refused_records",
    "Records in batches that were refused because they break a rule of validation. Topics beyond 200 count as `other`.",
    ["topic", "rule"],
)
observed_records = Counter(
    "kafka_mesh_gateway_observed_records",
    "Records in batches that break a rule of validation and are stored (modes `observe` and `mark`); topics as above.",
    ["topic", "rule"],
)
refused_topics = Counter(
    "kafka_mesh_gateway_refused_topics",
    "Topics that were not created because their name breaks a rule of validation.",
    ["rule"],
)
observed_topics = Counter(
    "kafka_mesh_gateway_observed_topics",
    "Topics that were created although their name breaks a rule of validation (mode `observe`).",
    ["rule"],
)
withheld_batches = Counter(
    "kafka_mesh_gateway_withheld_batches",
    "Answers in which records were kept from a client (`fetch`), or were not stored (`produce`), because of a rule of "
    "protection; topics as above.",
    ["topic", "rule", "way"],
)
untold_refusals = Counter(
    "kafka_mesh_gateway_untold_refusals",
    "Refused operations and batches without a line in the log: their like had a line a moment ago, or there were too "
    "many.",
)
tls_handshakes = Counter(
    "kafka_mesh_gateway_tls_handshakes",
    "Handshakes of TLS clients by how far they came: accepted (a client came), begun (the client said hello), done. "
    "A client that does not trust the certificate, or that lacks its own where the listener asks for one, only begins. "
    "A handshake that is not done after 10 s is cut.",
    ["stage"],
)
listener_open = Gauge(
    "kafka_mesh_gateway_listener_open",
    "1 while the listener lets clients in; 0 after control has closed it, or while it can't be opened.",
    ["listener"],
)
draining_connections = Gauge(
    "kafka_mesh_gateway_draining_connections",
    "Connections of listeners that control has closed or changed, which the gateway ends within `LISTENER_DRAIN_S`.",
)
ended_by_listeners = Counter(
    "kafka_mesh_gateway_connections_ended_by_listeners",
    "Connections that ended because control has closed or changed their listener: `closed` at once, or `drained`.",
    ["how"],
)
listener_refusals = Counter(
    "kafka_mesh_gateway_listener_refusals",
    "Clients that a worker sent away because it has not opened the listener where they came in, or no more.",
)
successful_authentications = Counter(
    "kafka_mesh_gateway_successful_authentications",
    "Log-ins of clients that succeeded (Kafka: `successful-authentication-total`).",
    ["listener", "mechanism"],
)
failed_authentications = Counter(
    "kafka_mesh_gateway_failed_authentications",
    "Log-ins of clients that failed (Kafka: `failed-authentication-total`). The mechanism is `unsupported` until "
    "the client has chosen one of the listener's; `certificate` counts certificates that no mapping rule matches.",
    ["listener", "mechanism"],
)
successful_reauthentications = Counter(
    "kafka_mesh_gateway_successful_reauthentications",
    "Log-ins that renewed a session (Kafka: `successful-reauthentication-total`).",
    ["listener", "mechanism"],
)
failed_reauthentications = Counter(
    "kafka_mesh_gateway_failed_reauthentications",
    "Log-ins that should renew a session and failed (Kafka: `failed-reauthentication-total`).",
    ["listener", "mechanism"],
)
expired_connections_killed = Counter(
    "kafka_mesh_gateway_expired_connections_killed",
    "Connections closed at a request after the end of their session (Kafka: `expired-connections-killed-count`).",
    ["listener"],
)
users = Gauge("kafka_mesh_gateway_users", "Users with passwords that the gateway knows.")
users_age = Gauge(
    "kafka_mesh_gateway_users_age_seconds",
    "Seconds since control has confirmed the users (USERS_FROM_CONTROL), by way of a router; before the first time, "
    "since the file of the last users was written, or the gateway began.",
)
refused_users = Counter(
    "kafka_mesh_gateway_refused_users",
    "Times that the gateway refused the users that a router sent, as too old or damaged; the last users count on.",
)
control_changes = Counter(
    "kafka_mesh_gateway_control_changes",
    "Changes that clients asked control for by Kafka's tools, by kind of change and status of the answer.",
    ["kind", "code"],
)
token_key_requests = Counter(
    "kafka_mesh_gateway_token_key_requests", "Requests to issuers for their keys: answered, failed.", ["outcome"]
)
client_connections = Gauge("kafka_mesh_gateway_client_connections", "Open client connections.")
cut_connections = Counter(
    "kafka_mesh_gateway_cut_connections",
    "Client connections that the gateway has ended, by why: idle, stalled (a request did not go on), unread (answers "
    "were not read), login (no log-in in time), address and principal (one has too many), revoked. A client "
    "is revoked when its user, its certificate or its last right is gone.",
    ["reason"],
)
malformed_frames = Counter("kafka_mesh_gateway_malformed_frames", "Client connections closed for what they sent.")
client_bytes = Counts(
    "kafka_mesh_gateway_client_bytes", "Bytes of frames from (in) and to (out) clients.", ["direction"]
)
in_flight_bytes = Gauge(
    "kafka_mesh_gateway_in_flight_bytes", "Bytes of requests without an answer, and of unfinished frames."
)
gathered_bytes = Gauge(
    "kafka_mesh_gateway_gathered_bytes",
    "Bytes of brokers' large answers that cannot pass while they arrive, and of answers that clients do not read.",
)
answers_waited = Counter(
    "kafka_mesh_gateway_answers_waited",
    "Times that the gateway stopped reading a large answer of a broker, because MAX_GATHERED_MIB was full.",
)
pauses = Counter(
    "kafka_mesh_gateway_pauses",
    "Times that a request paused before the gateway asked again, by why: coordinator (loads), leader (of a new topic), "
    "unseen (transactions).",
    ["waits_for"],
)
paused_connections = Counter(
    "kafka_mesh_gateway_paused_connections",
    "Times that reading from a client stopped, by why: requests, bytes (of the process), answers, upstream, quota.",
    ["reason"],
)
throttled = Counter(
    "kafka_mesh_gateway_throttled",
    "Times that a use exceeded a quota of the mesh, by the quota's key.",
    ["key"],
)
throttle_seconds = Counter(
    "kafka_mesh_gateway_throttle_seconds", "Time that connections have to pause for a quota.", ["key"]
)
throttled_connections = Gauge("kafka_mesh_gateway_throttled_connections", "Connections that pause for a quota.")
quota_accounts = Gauge(
    "kafka_mesh_gateway_quota_accounts", "Users, client ids and addresses whose use is counted against quotas."
)
forgotten_quota_accounts = Counter(
    "kafka_mesh_gateway_forgotten_quota_accounts",
    "Quota accounts that the gateway dropped because there are too many: their users may use the quota anew.",
)
upstream_bytes = Counts(
    "kafka_mesh_gateway_upstream_bytes", "Bytes of frames to (out) and from (in) clusters.", ["cluster", "direction"]
)
upstream_calls = Counts("kafka_mesh_gateway_upstream_calls", "Requests sent to clusters.", ["cluster", "api"])
upstream_errors = Counter(
    "kafka_mesh_gateway_upstream_errors",
    "Calls that got no answer, by why: down, connect, security, lost, timeout, version, full, malformed, memory.",
    ["cluster", "kind"],
)
upstream_connections = Gauge("kafka_mesh_gateway_upstream_connections", "Open connections to brokers.", ["cluster"])
identities = Gauge(
    "kafka_mesh_gateway_identities",
    "Principals, or clients with tokens, that have an identity of their own at a cluster, and were there lately.",
    ["cluster"],
)
identity_connections = Gauge(
    "kafka_mesh_gateway_identity_connections",
    "Open connections to brokers by clients' own identities, counted each half second.",
    ["cluster"],
)
identity_refusals = Counter(
    "kafka_mesh_gateway_identity_refusals",
    "Refusals by a cluster that takes clients by their own identity. Reasons: none (a call without a credential or a "
    "token), login (a refused credential), bound (a call beyond the number of connections).",
    ["cluster", "reason"],
)
shared_calls = Counts(
    "kafka_mesh_gateway_shared_calls", "Produce requests sent on connections that many clients share.", ["cluster"]
)
left_shared = Counter(
    "kafka_mesh_gateway_left_shared",
    "Clients that went on with connections of their own, for others' sake, by why: large, many (unanswered), "
    "replicas (that come first), throttled; broken (maybe by what they sent); or for their own: slow.",
    ["cluster", "reason"],
)
cluster_up = Gauge("kafka_mesh_gateway_cluster_up", "1 while the cluster can be reached.", ["cluster"])
waiting_fetches = Gauge(
    "kafka_mesh_gateway_waiting_fetches",
    "Fetch requests of quiet consumers that wait at the gateway, and were not sent to brokers.",
)
ended_waits = Counts(
    "kafka_mesh_gateway_ended_waits",
    "Fetch requests whose wait at the gateway has ended, by why: over (nothing came, and the gateway has answered), "
    "news (of a partition: sent to the brokers), lost (a broker is not watched now: sent).",
    ["why"],
)
waited_out = ended_waits.labels("over")
log_end_watches = Gauge(
    "kafka_mesh_gateway_log_end_watches",
    "Polls of the gateway's own that watch the ends of logs for these requests, each for up to 250 partitions of a "
    "broker.",
)
fetch_sessions = Gauge("kafka_mesh_gateway_fetch_sessions", "Fetch sessions of clients (KIP-227).")
fetch_session_partitions = Gauge("kafka_mesh_gateway_fetch_session_partitions", "Partitions in all of them.")
receipts = Gauge(
    "kafka_mesh_gateway_receipts",
    "Readers with receipts in this interval, by partition; of more than 5,000 the gateway does not tell who they are.",
)
fetch_sessions_made_way = Counter(
    "kafka_mesh_gateway_fetch_sessions_made_way",
    "Fetch sessions that were ended for others, because there are too many: their clients ask in full again.",
)
share_session_links = Gauge(
    "kafka_mesh_gateway_share_session_links",
    "Links of clients' connections to the workers that own their share sessions.",
)
undone_transactions = Gauge(
    "kafka_mesh_gateway_undone_transactions",
    "Transactions over several clusters that were decided and found with a part to commit, all clusters in reach.",
)
long_open_parts = Gauge(
    "kafka_mesh_gateway_long_open_parts",
    "Transactional ids that are open on another cluster than their home for more than 10 s.",
)
shadow_faults = Counter(
    "kafka_mesh_gateway_shadow_faults",
    "Subscriptions of groups whose shadow topics were not made, by reason.",
    ["reason"],
)
group_rebalances = Counter(
    "kafka_mesh_gateway_group_rebalances",
    "Rebalances by group, as its members here have heard of them: generations of classic groups whose leader is here, "
    "and new assignments of members of newer groups. Groups beyond 200 count as `other`.",
    ["group"],
)
held_answers = Counter(
    "kafka_mesh_gateway_held_answers",
    "Answers to read_committed readers without the records of some transactions, by why: unfinished (not committed on "
    "all clusters), unseen (the log of a home can't be read).",
    ["why"],
)
stitched_requests = Counter(
    "kafka_mesh_gateway_stitched_requests",
    "Fetch and Produce requests about stitched logs, by their part: old, present, past (of a fork). Some count twice.",
    ["part"],
)
longest_held_seconds = Gauge(
    "kafka_mesh_gateway_longest_held_seconds",
    "For how long read_committed readers have waited for one transaction over several clusters; 0: nobody waits.",
)
remembered = Gauge(
    "kafka_mesh_gateway_remembered",
    "Entries of what the gateway remembers over requests (the fields of `Memory`), those out of date included.",
    ["what"],
)
remembered_most = Gauge(
    "kafka_mesh_gateway_remembered_most", "Room for them: where all of it is taken, the oldest make way.", ["what"]
)
passages = Gauge(
    "kafka_mesh_gateway_passages", "Producers, by partition, with batches on their way to where their topic has moved."
)
table_revision = Gauge("kafka_mesh_gateway_table_revision", "Revision of the routing table in force.")
table_outdated = Gauge(
    "kafka_mesh_gateway_table_outdated",
    "1 while the gateway serves no client, because topics may have moved since the table on disk was kept.",
)
hold_seconds = Histogram(
    "kafka_mesh_gateway_hold_seconds",
    "How long Produce of moving topics was held.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
held_requests = Gauge("kafka_mesh_gateway_held_requests", "Produce requests that wait for a move to be done.")
undecided_moves = Gauge(
    "kafka_mesh_gateway_undecided_moves",
    "1 while records for moving topics are refused, because no router has sent the end of the move.",
)
conversions_waiting = Gauge(
    "kafka_mesh_gateway_conversions_waiting", "Conversions of old clients' records that wait for a process."
)
conversion_seconds = Histogram(
    "kafka_mesh_gateway_conversion_seconds",
    "How long a conversion took, waiting included: batches_of (Produce), message_sets_of (Fetch), opened_batches "
    "(rules of validation and protection in Produce) or revealed_batches (Fetch, ShareFetch).",
    ["function"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
failed_conversions = Counter(
    "kafka_mesh_gateway_failed_conversions", "Conversions without a result: out of time or room.", ["function"]
)
deltas_refused = Counter(
    "kafka_mesh_gateway_table_deltas_refused",
    "Changes of tables that did not fit the table here; whole tables followed.",
)
discovery_connected = Gauge("kafka_mesh_gateway_discovery_connected", "1 while a router is connected.")
traffic = TrafficMetrics("gateway")
tracing = TracingMetrics("gateway")
forwarded_pushes = Counter(
    "kafka_mesh_gateway_forwarded_pushes",
    "Pushes of clients' metrics (TELEMETRY_FORWARDED) by what became of them: sent, failed (the receiver did not take "
    "them in time), lost (no room).",
    ["outcome"],
)
unopened_audit_bytes = Gauge(
    "kafka_mesh_gateway_unopened_audit_bytes", "Batches of audited topics whose records are not written down yet."
)
lost_audit_records = Counter(
    "kafka_mesh_gateway_lost_audit_records",
    "Records of audited topics without an audit record: no room, or the home cluster did not take it.",
)
walks = Info(
    "kafka_mesh_gateway_walks",
    "How the hot modules run: compiled, or python where the build found no C compiler.",
)
