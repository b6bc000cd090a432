"""Changes of the rules that are held or were given up: few among many, and each part of a history asks for its own."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("create index rollouts_uncounted on rollouts (revision) where state <> 'switched'")


def downgrade() -> None:
    op.drop_index("rollouts_uncounted")
