"""Verifiers of users who log in to gateways, and the secret of the decoys that unknown users appear to have."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "user_verifiers",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), index=True),
    )
    decoys = op.create_table("user_decoys", sa.Column("secret", sa.LargeBinary, primary_key=True))
    op.bulk_insert(decoys, [{"secret": secrets.token_bytes(32)}])


def downgrade() -> None:
    raise NotImplementedError("users could not log in any more; restore a backup")
