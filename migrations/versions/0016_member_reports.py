"""What members report leaves the log: instances of sidecars, and how far replays are. The rows of `consumer_instances`
stay as events have made them, and what comes from now on is a report. Each step is instant, however large the log is.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "member_reports",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Index("member_reports_name", "name", "sequence"),
        sa.Index("member_reports_time", "time"),
    )
    op.create_table(
        "member_report_head",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="member_report_head_one_row"),
    )
    op.execute("insert into member_report_head values (1, 0)")
    op.create_table(
        "replay_progress",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("update_time", sa.DateTime(timezone=True), nullable=False),
    )
    # a default that is the same for all rows rewrites none of them
    since = sa.Column("update_time", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())
    op.add_column("consumer_instances", since)
    op.alter_column("consumer_instances", "update_time", server_default=None)
    op.drop_column("consumer_instances", "revision")


def downgrade() -> None:
    raise NotImplementedError("an earlier release would not know what members have reported since; restore a backup")
