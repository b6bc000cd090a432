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
