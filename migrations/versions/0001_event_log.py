"""The event log with its counter, the outbox, remembered requests and the projections."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

APPEND_ONLY = """
create function refuse_change_of_the_log() returns trigger language plpgsql as $$
begin
    raise exception 'the event log only grows: % on % is not possible', tg_op, tg_table_name
        using errcode = 'restrict_violation', hint = 'append an event that says what is true now';
end $$;

create trigger events_never_change before update or delete on events
    for each row execute function refuse_change_of_the_log();
create trigger events_never_vanish before truncate on events
    for each statement execute function refuse_change_of_the_log();
alter table events enable always trigger events_never_change;
alter table events enable always trigger events_never_vanish;
"""


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("stream_version", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("payload", JSONB, nullable=False),
        sa.UniqueConstraint("stream", "stream_version", name="events_stream_version"),
    )
    op.execute(APPEND_ONLY)
    op.create_table(
        "log_head",
        sa.Column(
            "id",
            sa.SmallInteger,
            sa.CheckConstraint("id = 1", name="log_head_one_row"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("position", sa.BigInteger, nullable=False),
    )
    op.execute("insert into log_head values (1, 0)")
    op.create_table(
        "outbox",
        sa.Column(
            "id",
            sa.SmallInteger,
            sa.CheckConstraint("id = 1", name="outbox_one_row"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("kafka_cluster_id", sa.Text, nullable=False),
    )
    op.execute("insert into outbox values (1, 0, '')")
    op.create_table(
        "requests",
        sa.Column("request_id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("ok", sa.Boolean, nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False, index=True),
    )
    _create_projections()


def _create_projections() -> None:
    op.create_table(
        "clusters",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("ordinal", sa.Integer, nullable=False, unique=True),
        sa.Column("home", sa.Boolean, nullable=False),
        sa.Column("kafka_cluster_id", sa.Text, nullable=False),
        sa.Column("spec", JSONB, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "forwarding_rules",
        sa.Column("rule_id", sa.Text, primary_key=True),
        sa.Column("rank", sa.Double, nullable=False),
        sa.Column("match_kind", sa.Text, nullable=False),
        sa.Column("match", sa.Text, nullable=False),
        sa.Column("target_cluster", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("update_time", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("match_kind", "match", name="forwarding_rules_match"),
    )
    states = sa.CheckConstraint("state in ('pending', 'switched', 'aborted')", name="rollouts_state")
    op.create_table(
        "rollouts",
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("state", sa.Text, states, nullable=False),
        sa.Column("cause", sa.Text, nullable=False, server_default=""),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "consumer_instances",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("sidecar", sa.Text, nullable=False),
        sa.Column("instance", JSONB, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("the log is kept for ever; to start afresh, create another database")
