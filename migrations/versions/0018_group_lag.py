"""Positions of groups and ends of partitions over time: samples that the leading control takes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "group_lag_series",
        sa.Column("series", sa.Uuid, primary_key=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Index("group_lag_series_names", "group_name", "topic"),
    )
    op.create_table(
        "group_lag_samples",
        sa.Column("series", sa.Uuid, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lasts", sa.Boolean, nullable=False),
        sa.Column("partitions", ARRAY(sa.Integer), nullable=False),
        sa.Column("positions", ARRAY(sa.BigInteger), nullable=False),
        sa.Column("ends", ARRAY(sa.BigInteger), nullable=False),
        sa.PrimaryKeyConstraint("series", "time", name="group_lag_samples_pkey"),
        sa.Index("group_lag_samples_time", "lasts", "time"),
    )
    op.create_table(
        "group_lag_rounds",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("groups", sa.BigInteger, nullable=False),
        sa.Column("partitions", sa.BigInteger, nullable=False),
        sa.Column("left_out_groups", sa.BigInteger, nullable=False),
        sa.Column("left_out_partitions", sa.BigInteger, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.CheckConstraint("id = 1", name="group_lag_rounds_one_row"),
    )


def downgrade() -> None:
    for table in ("group_lag_rounds", "group_lag_samples", "group_lag_series"):
        op.drop_table(table)
