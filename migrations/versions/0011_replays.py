"""Replays. The log's events about them say nothing about the mesh as it was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

BEFORE = (
    "stream <> 'rules' and stream not like 'instances/%' and stream not like 'members/%' "
    "and stream not like 'schedules/%'"
)
AFTER = f"{BEFORE} and stream not like 'replays/%'"


def upgrade() -> None:
    op.create_table(
        "replays",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("destination", sa.Text, nullable=False),
        sa.Column("spec", JSONB, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("member", sa.Text, nullable=False, server_default=""),
        sa.Column("records", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("failed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("description", sa.Text, nullable=False, server_default=""),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True)),
        sa.CheckConstraint("state in ('pending', 'running', 'done', 'failed', 'cancelled')", name="replays_state"),
    )
    _index(AFTER)


def downgrade() -> None:
    _index(BEFORE)
    op.drop_table("replays")


def _index(streams: str) -> None:
    op.drop_index("events_of_aggregates")
    op.execute(f"create index events_of_aggregates on events (stream, kind, position desc) where {streams}")
