"""Tables of control, as SQLAlchemy sees them. `migrations/` makes them; a test compares the two."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    false,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData()

events = Table(
    "events",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", Text, nullable=False),
    Column("stream_version", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("actor", Text, nullable=False),
    # the mesh.v1.Event as it goes to Kafka; `payload` is the same for people and reports
    Column("body", LargeBinary, nullable=False),
    Column("payload", JSONB, nullable=False),
    UniqueConstraint("stream", "stream_version", name="events_stream_version"),
)

log_head = Table(
    "log_head",
    metadata,
    Column(
        "id", SmallInteger, CheckConstraint("id = 1", name="log_head_one_row"), primary_key=True, autoincrement=False
    ),
    Column("position", BigInteger, nullable=False),
    # of the event there (mesh.event_log): what the next one must hold
    Column("hash", LargeBinary, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    # of the body; another format is not read
    Column("format", Text, primary_key=True),
    # of the event at `position`: the snapshot counts for this log only
    Column("event_hash", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # SHA-256 of the body
    Column("digest", LargeBinary, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="outbox_one_row"), primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    # the Kafka cluster that the position counts for; another one starts from the beginning
    Column("kafka_cluster_id", Text, nullable=False),
)

requests = Table(
    "requests",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("ok", Boolean, nullable=False),
    # the response, or a google.rpc.Status when not ok
    Column("answer", LargeBinary, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False, index=True),
)

# Verifiers of users who log in to gateways. Secrets of a kind: in no event, and in no other table.
user_verifiers = Table(
    "user_verifiers",
    metadata,
    Column("name", Text, primary_key=True),
    # position of the last event about the user
    Column("revision", BigInteger, nullable=False),
    # a ScramVerifiers
    Column("body", LargeBinary, nullable=False),
    # when the user was deleted; null for a user who can log in
    Column("time", DateTime(timezone=True), index=True),
)

# One row: the secret from which gateways make the verifiers that unknown users appear to have.
user_decoys = Table("user_decoys", metadata, Column("secret", LargeBinary, primary_key=True))

clusters = Table(
    "clusters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("ordinal", Integer, nullable=False, unique=True),
    Column("home", Boolean, nullable=False),
    Column("kafka_cluster_id", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("revision", BigInteger, nullable=False),
)

forwarding_rules = Table(
    "forwarding_rules",
    metadata,
    Column("rule_id", Text, primary_key=True),
    Column("rank", Double, nullable=False),
    Column("match_kind", Text, nullable=False),
    Column("match", Text, nullable=False),
    # what is asked of clients (ClientMatch); empty in rules about all of them
    Column("clients", JSONB, nullable=False, server_default="{}"),
    # empty in rules about client software
    Column("target_cluster", Text, nullable=False),
    Column("upstream_topic", Text, nullable=False, server_default=""),
    Column("shadow_topics", Boolean, nullable=False, server_default=false()),
    Column("span_clusters", Boolean, nullable=False, server_default=false()),
    Column("node_view", Text, nullable=False, server_default=""),
    Column("revision", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("update_time", DateTime(timezone=True), nullable=False),
    UniqueConstraint("match_kind", "match", "clients", name="forwarding_rules_match"),
)

rollouts = Table(
    "rollouts",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('pending', 'switched', 'aborted')", name="rollouts_state"),
        nullable=False,
    ),
    Column("cause", Text, nullable=False, server_default=""),
    Column("started", DateTime(timezone=True), nullable=False),
    Column("ended", DateTime(timezone=True)),
)

sidecar_orders = Table(
    "sidecar_orders",
    metadata,
    # orders/{order}
    Column("name", Text, primary_key=True),
    # instances/{group}.{instance} or members/{sidecar}
    Column("target", Text, nullable=False),
    # that it was given to; the one that carried it out, once one has
    Column("sidecar", Text, nullable=False),
    # pause, resume, seek, ...
    Column("kind", Text, nullable=False),
    Column("command", JSONB, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('open', 'done', 'failed', 'expired')", name="sidecar_orders_state"),
        nullable=False,
    ),
    Column("description", Text, nullable=False, server_default=""),
    Column("revision", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("ordered", DateTime(timezone=True), nullable=False),
    Column("ended", DateTime(timezone=True)),
)

replays = Table(
    "replays",
    metadata,
    # replays/{replay}
    Column("name", Text, primary_key=True),
    # backend, source, seek, group, ...
    Column("destination", Text, nullable=False),
    # the mesh.v1.ReplaySpec
    Column("spec", JSONB, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('pending', 'running', 'done', 'failed', 'cancelled')", name="replays_state"),
        nullable=False,
    ),
    # that carries it out, or did last; empty while none has
    Column("member", Text, nullable=False, server_default=""),
    Column("records", BigInteger, nullable=False, server_default="0"),
    Column("failed", BigInteger, nullable=False, server_default="0"),
    Column("description", Text, nullable=False, server_default=""),
    Column("revision", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("started", DateTime(timezone=True), nullable=False),
    Column("ended", DateTime(timezone=True)),
)

record_rules = Table(
    "record_rules",
    metadata,
    Column("record_rule_id", Text, primary_key=True),
    # mirror or content
    Column("kind", Text, nullable=False),
    Column("source_cluster", Text, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("update_time", DateTime(timezone=True), nullable=False),
)

call_audit_events = Table(
    "call_audit_events",
    metadata,
    Column("sequence", BigInteger, Identity(always=True), primary_key=True),
    Column("audit_id", Text, nullable=False, unique=True),
    Column("time", DateTime(timezone=True), nullable=False, index=True),
    Column("actor", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("code", Text, nullable=False),
    # the mesh.v1.AuditEvent, without its sequence
    Column("body", LargeBinary, nullable=False),
)

audit_outbox = Table(
    "audit_outbox",
    metadata,
    Column(
        "id",
        SmallInteger,
        CheckConstraint("id = 1", name="audit_outbox_one_row"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("sequence", BigInteger, nullable=False),
)

gateways = Table(
    "gateways",
    metadata,
    # members/{member}
    Column("name", Text, primary_key=True),
    # the mesh.v1.Member as it was last heard of
    Column("member", JSONB, nullable=False),
    Column("connected", Boolean, nullable=False),
    Column("seen", DateTime(timezone=True), nullable=False),
)

rule_versions = Table(
    "rule_versions",
    metadata,
    # {rule_id}@{from_revision}
    Column("name", Text, primary_key=True),
    Column("rule_id", Text, nullable=False),
    Column("from_revision", BigInteger, nullable=False),
    # null while it is in force
    Column("until_revision", BigInteger),
    Column("rank", Double, nullable=False),
    # kind and text of the match, to find those that a topic may match
    Column("match_kind", Text, nullable=False),
    Column("match", Text, nullable=False),
    # the mesh.v1.RuleSpec
    Column("spec", LargeBinary, nullable=False),
    Index("rule_versions_of_rule", "rule_id", "from_revision", unique=True),
    Index("rule_versions_of_match", "match_kind", "match", "from_revision"),
    Index("rule_versions_span", text("int8range(from_revision, until_revision)"), postgresql_using="gist"),
)

# Audit events of records; a pipeline writes them. Partitioned by day: the pipeline makes and drops the tables of days,
# each with a unique index on event_id.
audit_events = Table(
    "audit_events",
    metadata,
    Column("time", DateTime(timezone=True), nullable=False),
    Column("event_id", Uuid, nullable=False),
    # cluster whose audit topic it was read from
    Column("cluster_name", Text, nullable=False),
    Column("service_id", Text, nullable=False),
    Column("audit_type", Text, nullable=False),
    Column("audit_status", Text, nullable=False),
    Column("topic", Text),
    Column("partition", Integer),
    Column("offset", BigInteger),
    Column("correlation_id", Text),
    Column("traceability_id", Text),
    Column("trace_id", Text),
    Column("key", Text),
    Column("stacktrace", Text),
    # who called which method of control
    Column("actor", Text),
    Column("method", Text),
    *(
        # by a digest: these ids come in no order, and an index over the texts takes three times as much of all
        Index(
            f"audit_events_{name}",
            text(f"hashtextextended({name}, 0)"),
            "time",
            postgresql_where=text(f"{name} is not null"),
        )
        for name in ("correlation_id", "traceability_id", "trace_id")
    ),
    Index("audit_events_place", "topic", "partition", "offset", postgresql_where=text('"offset" is not null')),
    Index("audit_events_topic", "topic", "time"),
    Index("audit_events_service", "service_id", "time"),
    postgresql_partition_by="range (time)",
)

# How far that pipeline is in each partition of the audit topics; it says so again and again.
audit_progress = Table(
    "audit_progress",
    metadata,
    Column("cluster_name", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("log_end", BigInteger, nullable=False),
    # all events of the partition up to this time are in the table; null while nothing is known
    Column("complete_until", DateTime(timezone=True)),
    Column("told", DateTime(timezone=True), nullable=False),
)

# The clusters that it follows, and what keeps it from reading them.
audit_sources = Table(
    "audit_sources",
    metadata,
    Column("cluster_name", Text, primary_key=True),
    Column("problem", Text, nullable=False),
    Column("told", DateTime(timezone=True), nullable=False),
)

# Traffic: of whom, of what. A pipeline writes this and all of `traffic_...`; the key is a digest of the rest.
traffic_series = Table(
    "traffic_series",
    metadata,
    Column("series", Uuid, primary_key=True),
    Column("client", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("topic", Text, nullable=False),
    # rules/{rule}
    Column("rule", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("api", Text, nullable=False),
    Column("reporter", Text, nullable=False),
    *(Index(f"traffic_series_{name}", name) for name in ("client", "principal", "topic", "rule", "cluster")),
)


def _traffic(name: str, partitions: str | None) -> Table:
    """Traffic of one step; partitioned ones have a table a day, which the pipeline makes and drops."""
    return Table(
        name,
        metadata,
        Column("series", Uuid, primary_key=True),
        # where the minute, hour or day begins
        Column("time", DateTime(timezone=True), primary_key=True),
        Column("records", BigInteger, nullable=False),
        Column("bytes", BigInteger, nullable=False),
        Column("calls", BigInteger, nullable=False),
        Column("errors", BigInteger, nullable=False),
        # a KLL sketch of milliseconds; null without calls
        Column("latency", LargeBinary),
        Index(f"{name}_time", "time", postgresql_using="brin"),
        postgresql_partition_by=partitions,
    )


traffic_minutes = _traffic("traffic_minutes", "range (time)")
traffic_hours = _traffic("traffic_hours", "range (time)")
traffic_days = _traffic("traffic_days", None)

# Reports that were counted last in each partition: one that comes again is known.
traffic_reports = Table(
    "traffic_reports",
    metadata,
    Column("report", Uuid, primary_key=True),
    Column("partition", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Index("traffic_reports_place", "partition", "offset"),
)

# How far that pipeline is: set in the transaction that writes what was read up to there.
traffic_progress = Table(
    "traffic_progress",
    metadata,
    Column(
        "id",
        SmallInteger,
        CheckConstraint("id = 1", name="traffic_progress_one_row"),
        primary_key=True,
        autoincrement=False,
    ),
    # offsets in mesh.traffic, as services/pipeline/kafka/positions.py has them
    Column("position", JSONB, nullable=False),
    Column("batch", BigInteger, nullable=False),
    # traffic before this time is in the tables; null while nothing is known
    Column("complete_until", DateTime(timezone=True)),
    *(
        Column(name, BigInteger, nullable=False, server_default="0")
        for name in ("reports", "counters", "repeated", "late", "refused", "overflowed")
    ),
    Column("told", DateTime(timezone=True), nullable=False),
)
