"""Refusals of gateways are looked up by the principal who was refused."""

from __future__ import annotations

from alembic import op

from migrations import gently

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

TABLE = "audit_events"
NAME = "refused"
WHAT = "(hashtextextended(key, 0), time) where audit_type in ('AUTHORIZATION', 'PROTECTION', 'VALIDATION')"


def upgrade() -> None:
    """The indexes of the days are made first, and nobody waits for them."""
    with gently.one_by_one():
        for day in gently.partitions_of(TABLE):
            if gently.is_there(day):
                gently.make_index(f"{day}_{NAME}", f"{day} {WHAT}")
    index = f"{TABLE}_{NAME}"
    op.execute(f"lock table {TABLE} in access exclusive mode")  # with it nobody makes or drops a day
    op.execute(f"create index {index} on only {TABLE} {WHAT}")
    for day in gently.partitions_of(TABLE):
        op.execute(f"create index if not exists {day}_{NAME} on {day} {WHAT}")  # of a day that was made meanwhile
        op.execute(f"alter index {index} attach partition {day}_{NAME}")


def downgrade() -> None:
    op.execute(f"drop index {TABLE}_{NAME}")
