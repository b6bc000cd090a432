"""Of audit events there is one for each id and day, whatever time it is told with: a gateway tells of a record again,
by its id and at a later time, when its client writes it again. No unique index over partitions leaves out what they are
made by, so each day has one of its own, which the pipeline makes with the day.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

DAYS = "select inhrelid::regclass::text from pg_inherits where inhparent = 'audit_events'::regclass order by 1"


def upgrade() -> None:
    days = _days()
    for day in days:
        op.execute(
            f"delete from {day} later using {day} first "
            "where later.event_id = first.event_id and later.time > first.time"
        )
    op.drop_constraint("audit_events_pkey", "audit_events")
    for day in days:
        op.execute(f"create unique index {day}_event_id on {day} (event_id)")


def downgrade() -> None:
    for day in _days():
        op.execute(f"drop index {day}_event_id")
    op.create_primary_key("audit_events_pkey", "audit_events", ["event_id", "time"])


def _days() -> list[str]:
    return [name for (name,) in op.get_bind().execute(sa.text(DAYS))]
