"""Audit events: every call that wanted to change something."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NEVER_CHANGED = """
create trigger audit_events_never_change before update on audit_events
    for each row execute function refuse_change_of_the_log();
create trigger audit_events_never_vanish before truncate on audit_events
    for each statement execute function refuse_change_of_the_log();
"""


def upgrade() -> None:
    op.create_table(
        "audit_events",
        sa.Column("sequence", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("audit_id", sa.Text, nullable=False, unique=True),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False, index=True),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.execute(NEVER_CHANGED)
    op.create_table(
        "audit_outbox",
        sa.Column(
            "id",
            sa.SmallInteger,
            sa.CheckConstraint("id = 1", name="audit_outbox_one_row"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
    op.execute("insert into audit_outbox values (1, 0)")


def downgrade() -> None:
    op.drop_table("audit_outbox")
    op.drop_table("audit_events")
