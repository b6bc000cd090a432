"""Receipts: who was sent which offsets of which partition, as a pipeline folds them by hour or minute."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import INT8MULTIRANGE

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "receipt_readers",
        sa.Column("reader", sa.Uuid, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("principal", "client", "group_name", "topic")),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Uuid, nullable=False),
        sa.Column("first_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_time", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("receipt_readers_topic", "receipt_readers", ["topic", "partition"])
    op.create_table(
        "receipts",
        sa.Column("reader", sa.Uuid, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent", INT8MULTIRANGE, nullable=False),
        sa.Column("perhaps", INT8MULTIRANGE, nullable=False),
        sa.Column("first_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("reader", "time", name="receipts_pkey"),
        postgresql_partition_by="range (time)",
    )


def downgrade() -> None:
    op.drop_table("receipts")
    op.drop_table("receipt_readers")
