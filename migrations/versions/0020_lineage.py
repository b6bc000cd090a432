"""Edges of lineage: which application, group or topic passes records on to which other one, and when control saw it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lineage_edges",
        sa.Column("edge", sa.Uuid, primary_key=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("first_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("present", sa.Boolean, nullable=False),
        sa.Index("lineage_edges_source", "source"),
        sa.Index("lineage_edges_target", "target"),
    )
    op.create_table(
        "lineage_looks",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("edges", sa.BigInteger, nullable=False),
        sa.Column("left_out", sa.BigInteger, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.CheckConstraint("id = 1", name="lineage_looks_one_row"),
    )


def downgrade() -> None:
    for table in ("lineage_looks", "lineage_edges"):
        op.drop_table(table)
