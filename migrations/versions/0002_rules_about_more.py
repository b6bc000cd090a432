"""Rules about groups, transactional ids and client software, and topics with other names on their cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("upstream_topic", "node_view"):
        op.add_column("forwarding_rules", sa.Column(name, sa.Text, nullable=False, server_default=""))
    for name in ("shadow_topics", "span_clusters"):
        op.add_column("forwarding_rules", sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    for name in ("upstream_topic", "node_view", "shadow_topics", "span_clusters"):
        op.drop_column("forwarding_rules", name)
