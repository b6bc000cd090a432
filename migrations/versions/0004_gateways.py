"""Gateways that control has heard of and that have not said goodbye."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gateways",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("member", JSONB, nullable=False),
        sa.Column("connected", sa.Boolean, nullable=False),
        sa.Column("seen", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("gateways")
