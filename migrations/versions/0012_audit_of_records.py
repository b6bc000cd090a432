"""Audit events of records, of sidecars, gateways and control, as a pipeline writes them: partitioned by day, each day a
table that the pipeline makes and drops. What control itself writes of its calls keeps its data under another name.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

CALLS_FROM, CALLS = "audit_events", "call_audit_events"
OF_CALLS = (
    ("index", "{}_pkey"),
    ("index", "{}_audit_id_key"),
    ("index", "ix_{}_time"),
    ("sequence", "{}_sequence_seq"),
)
"""What carries the name of its table."""
IDS = ("correlation_id", "traceability_id", "trace_id")


def upgrade() -> None:
    _rename(CALLS_FROM, CALLS)
    op.create_table(
        "audit_events",
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event_id", sa.Uuid, nullable=False),
        sa.Column("cluster_name", sa.Text, nullable=False),
        sa.Column("service_id", sa.Text, nullable=False),
        sa.Column("audit_type", sa.Text, nullable=False),
        sa.Column("audit_status", sa.Text, nullable=False),
        sa.Column("topic", sa.Text),
        sa.Column("partition", sa.Integer),
        sa.Column("offset", sa.BigInteger),
        sa.Column("correlation_id", sa.Text),
        sa.Column("traceability_id", sa.Text),
        sa.Column("trace_id", sa.Text),
        sa.Column("key", sa.Text),
        sa.Column("stacktrace", sa.Text),
        sa.Column("actor", sa.Text),
        sa.Column("method", sa.Text),
        sa.PrimaryKeyConstraint("event_id", "time", name="audit_events_pkey"),
        postgresql_partition_by="range (time)",
    )
    for name in IDS:
        op.create_index(
            f"audit_events_{name}",
            "audit_events",
            [name, "time"],
            postgresql_where=sa.text(f"{name} is not null"),
        )
    op.create_index(
        "audit_events_place",
        "audit_events",
        ["topic", "partition", "offset"],
        postgresql_where=sa.text('"offset" is not null'),
    )
    op.create_index("audit_events_topic", "audit_events", ["topic", "time"])
    op.create_index("audit_events_service", "audit_events", ["service_id", "time"])
    op.create_table(
        "audit_progress",
        sa.Column("cluster_name", sa.Text, primary_key=True),
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("log_end", sa.BigInteger, nullable=False),
        sa.Column("complete_until", sa.DateTime(timezone=True)),
        sa.Column("told", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "audit_sources",
        sa.Column("cluster_name", sa.Text, primary_key=True),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("told", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    for table in ("audit_sources", "audit_progress", "audit_events"):
        op.drop_table(table)
    _rename(CALLS, CALLS_FROM)


def _rename(old: str, new: str) -> None:
    op.rename_table(old, new)
    for kind, name in OF_CALLS:
        op.execute(f"alter {kind} {name.format(old)} rename to {name.format(new)}")
    for trigger in ("never_change", "never_vanish"):
        op.execute(f"alter trigger {old}_{trigger} on {new} rename to {new}_{trigger}")
