"""Events of records are looked up by digests of their ids: an entry of 24 bytes instead of 60, and numbers to compare
instead of texts. Three such indexes, over ids that come in no order, were half of what PostgreSQL spent on a row.
"""

from __future__ import annotations

from alembic import op

from migrations import gently

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLE = "audit_events"
IDS = ("correlation_id", "traceability_id", "trace_id")


def upgrade() -> None:
    for name in IDS:
        _replace(name, f"hashtextextended({name}, 0), time")


def downgrade() -> None:
    for name in IDS:
        _replace(name, f"{name}, time", "_text")


def _replace(name: str, columns: str, kind: str = "") -> None:
    """The indexes of the days are made first, and nobody waits for them. Then they take the place of the old ones."""
    what = f"({columns}) where {name} is not null"
    with gently.one_by_one():
        for day in gently.partitions_of(TABLE):
            if gently.is_there(day):
                gently.make_index(f"{day}_{name}{kind}", f"{day} {what}")
    index = f"{TABLE}_{name}"
    op.execute(f"lock table {TABLE} in access exclusive mode")  # with it nobody makes or drops a day
    op.execute(f"drop index {index}")
    op.execute(f"create index {index} on only {TABLE} {what}")
    for day in gently.partitions_of(TABLE):
        op.execute(f"create index if not exists {day}_{name}{kind} on {day} {what}")  # of a day that was made meanwhile
        op.execute(f"alter index {index} attach partition {day}_{name}{kind}")
