"""Tables that pipelines write and control reads: the audit of records, traffic, and receipts."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import INT8MULTIRANGE, JSONB

from services.control.store.schema import metadata

REFUSED = "audit_type in ('AUTHORIZATION', 'PROTECTION', 'VALIDATION')"
"""The condition of the index for refusals of gateways. A query has the same text, so that PostgreSQL uses the index."""

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
    Index("audit_events_refused", text("hashtextextended(key, 0)"), "time", postgresql_where=text(REFUSED)),
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

# Readers of partitions that have receipts; the key is a digest of the names. Without a topic: a gateway had too many
# readers between these times.
receipt_readers = Table(
    "receipt_readers",
    metadata,
    Column("reader", Uuid, primary_key=True),
    Column("principal", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("cluster", Text, nullable=False),
    # the id that the cluster gave the topic
    Column("topic_id", Uuid, nullable=False),
    Column("first_time", DateTime(timezone=True), nullable=False),
    Column("last_time", DateTime(timezone=True), nullable=False),
    Index("receipt_readers_topic", "topic", "partition"),
)

# Receipts: the offsets that a reader was sent in an hour, or in a minute. Partitioned as minutes and hours are.
receipts = Table(
    "receipts",
    metadata,
    Column("reader", Uuid, primary_key=True),
    Column("time", DateTime(timezone=True), primary_key=True),
    Column("sent", INT8MULTIRANGE, nullable=False),
    # some of these offsets were sent, and it is not known which
    Column("perhaps", INT8MULTIRANGE, nullable=False),
    # the beginning of the first report about the row, and the end of the last one
    Column("first_time", DateTime(timezone=True), nullable=False),
    Column("last_time", DateTime(timezone=True), nullable=False),
    postgresql_partition_by="range (time)",
)

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
