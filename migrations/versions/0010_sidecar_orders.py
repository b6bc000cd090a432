"""What sidecars have been told. The log's events about sidecars say nothing about the mesh as it was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

BEFORE = "stream <> 'rules' and stream not like 'instances/%' and stream not like 'schedules/%'"
AFTER = (
    "stream <> 'rules' and stream not like 'instances/%' and stream not like 'members/%' "
    "and stream not like 'schedules/%'"
)


def upgrade() -> None:
    op.create_table(
        "sidecar_orders",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("sidecar", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("command", JSONB, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False, server_default=""),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("ordered", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True)),
        sa.CheckConstraint("state in ('open', 'done', 'failed', 'expired')", name="sidecar_orders_state"),
    )
    _index(AFTER)


def downgrade() -> None:
    _index(BEFORE)
    op.drop_table("sidecar_orders")


def _index(streams: str) -> None:
    op.drop_index("events_of_aggregates")
    op.execute(f"create index events_of_aggregates on events (stream, kind, position desc) where {streams}")
