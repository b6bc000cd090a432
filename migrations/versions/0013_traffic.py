"""Traffic: counters of gateways and sidecars by minute, hour and day, as a pipeline rolls them up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

SERIES = ("client", "principal", "topic", "rule", "cluster", "api", "reporter")
INDEXED = ("client", "principal", "topic", "rule", "cluster")
STEPS = {"traffic_minutes": "range (time)", "traffic_hours": "range (time)", "traffic_days": None}
COUNTS = ("reports", "counters", "repeated", "late", "refused", "overflowed")


def upgrade() -> None:
    op.create_table(
        "traffic_series",
        sa.Column("series", sa.Uuid, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in SERIES),
    )
    for name in INDEXED:
        op.create_index(f"traffic_series_{name}", "traffic_series", [name])
    for table, partitions in STEPS.items():
        op.create_table(
            table,
            sa.Column("series", sa.Uuid, nullable=False),
            sa.Column("time", sa.DateTime(timezone=True), nullable=False),
            sa.Column("records", sa.BigInteger, nullable=False),
            sa.Column("bytes", sa.BigInteger, nullable=False),
            sa.Column("calls", sa.BigInteger, nullable=False),
            sa.Column("errors", sa.BigInteger, nullable=False),
            sa.Column("latency", sa.LargeBinary),
            sa.PrimaryKeyConstraint("series", "time", name=f"{table}_pkey"),
            postgresql_partition_by=partitions,
        )
        op.create_index(f"{table}_time", table, ["time"], postgresql_using="brin")
    op.create_table(
        "traffic_reports",
        sa.Column("report", sa.Uuid, primary_key=True),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Index("traffic_reports_place", "partition", "offset"),
    )
    op.create_table(
        "traffic_progress",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("position", JSONB, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("complete_until", sa.DateTime(timezone=True)),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in COUNTS),
        sa.Column("told", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("id = 1", name="traffic_progress_one_row"),
    )


def downgrade() -> None:
    for table in ("traffic_progress", "traffic_reports", *STEPS, "traffic_series"):
        op.drop_table(table)
