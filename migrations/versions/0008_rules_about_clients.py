"""Rules about some clients only: what they ask of clients is part of their match."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("forwarding_rules", sa.Column("clients", JSONB, nullable=False, server_default="{}"))
    _unique("match_kind", "match", "clients")


def downgrade() -> None:
    op.execute("delete from forwarding_rules where clients <> '{}'")
    _unique("match_kind", "match")
    op.drop_column("forwarding_rules", "clients")


def _unique(*columns: str) -> None:
    op.drop_constraint("forwarding_rules_match", "forwarding_rules")
    op.create_unique_constraint("forwarding_rules_match", "forwarding_rules", columns)
