"""Of audit events there is one for each id and day, whatever time it is told with: a gateway tells of a record again,
by its id and at a later time, when its client writes it again. No unique index over partitions leaves out what they are
made by, so each day has one of its own, which the pipeline makes with the day.
"""

from __future__ import annotations

from functools import partial

from alembic import op

from migrations import gently

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

TABLE = "audit_events"


def upgrade() -> None:
    with gently.one_by_one():
        for day in gently.partitions_of(TABLE):
            if gently.is_there(day):
                gently.make_index(f"{day}_event_id", f"{day} (event_id)", unique=True, obstacles=partial(_once, day))
    op.drop_constraint("audit_events_pkey", TABLE)


def downgrade() -> None:
    for day in gently.partitions_of(TABLE):
        op.execute(f"drop index {day}_event_id")
    op.create_primary_key("audit_events_pkey", TABLE, ["event_id", "time"])


def _once(day: str) -> None:
    """Of the events with one id the earliest stays."""
    gently.delete(
        day,
        "event_id, time",
        f"select event_id, time from {day} later "
        f"where exists (select from {day} first where first.event_id = later.event_id and first.time < later.time)",
    )
