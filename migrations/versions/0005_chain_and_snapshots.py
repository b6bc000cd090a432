"""The end of the chain of hashes beside the log's last position, and snapshots."""

from __future__ import annotations

from hashlib import sha256

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ROWS_AT_ONCE = 1000

BOTH_MOVE = """
create function refuse_an_end_without_its_hash() returns trigger language plpgsql as $$
begin
    if new.position <> old.position and new.hash = old.hash then
        raise exception 'the database is of a newer release than this control, which knows no hashes'
            using errcode = 'restrict_violation', hint = 'run the control of the release that migrated the database';
    end if;
    return new;
end $$;

create trigger log_head_moves_with_its_hash before update on log_head
    for each row execute function refuse_an_end_without_its_hash();
"""
"""Releases that know no chain would append events past its end."""


def upgrade() -> None:
    op.add_column("log_head", sa.Column("hash", sa.LargeBinary, nullable=False, server_default=""))
    op.get_bind().execute(sa.text("update log_head set hash = :hash"), {"hash": _hash_of_what_is_there()})
    op.alter_column("log_head", "hash", server_default=None)
    op.execute(BOTH_MOVE)
    op.create_table(
        "snapshots",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("format", sa.Text, primary_key=True),
        sa.Column("event_hash", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
    )


def _hash_of_what_is_there() -> bytes:
    """Releases before this schema wrote events without hashes: each one's covers that of the one before."""
    query = sa.text("select body from events order by position")
    last = b""
    for (body,) in op.get_bind().execute(query, execution_options={"yield_per": ROWS_AT_ONCE}):
        last = sha256(last + body).digest()
    return last


def downgrade() -> None:
    raise NotImplementedError("the chain goes on from here; to start afresh, create another database")
