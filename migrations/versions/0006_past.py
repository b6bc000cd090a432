"""Versions that rules have had, and where in the log a time is: what questions about the past are answered from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from mesh.rpc import events

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

PAGE = 1000


def upgrade() -> None:
    table = op.create_table(
        "rule_versions",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("rule_id", sa.Text, nullable=False),
        sa.Column("from_revision", sa.BigInteger, nullable=False),
        sa.Column("until_revision", sa.BigInteger),
        sa.Column("rank", sa.Double, nullable=False),
        sa.Column("match_kind", sa.Text, nullable=False),
        sa.Column("match", sa.Text, nullable=False),
        sa.Column("spec", sa.LargeBinary, nullable=False),
    )
    rows = list(_versions(_changes()))
    for first in range(0, len(rows), PAGE):
        op.bulk_insert(table, rows[first : first + PAGE])
    op.create_index("rule_versions_of_rule", "rule_versions", ["rule_id", "from_revision"], unique=True)
    op.create_index("rule_versions_of_match", "rule_versions", ["match_kind", "match", "from_revision"])
    op.execute("create index rule_versions_span on rule_versions using gist (int8range(from_revision, until_revision))")
    op.create_index("events_time", "events", ["time", "position"])
    op.execute(
        "create index events_of_aggregates on events (stream, kind, position desc) "
        "where stream <> 'rules' and stream not like 'instances/%' and stream not like 'schedules/%'"
    )


def downgrade() -> None:
    op.drop_index("events_of_aggregates")
    op.drop_index("events_time")
    op.drop_table("rule_versions")


def _changes() -> Iterator[events.Event]:
    """The changes of the rules that counted, in the order of the log."""
    position, held = 0, None
    query = sa.text(
        "select position, body from events where stream = 'rules' and position > :position "
        "order by position limit :page"
    )
    while True:
        page = op.get_bind().execute(query, {"position": position, "page": PAGE}).all()
        for row in page:
            position, event = row.position, events.Event.FromString(row.body)
            match event.WhichOneof("payload"):
                case "rule_set_changed" if event.rule_set_changed.needs_hold:
                    held = event
                case "rule_set_changed":
                    yield event
                case "rollout_switched" if held and held.position == event.rollout_switched.revision:
                    yield held
                case _:
                    continue
        if len(page) < PAGE:
            return


def _versions(changes: Iterator[events.Event]) -> Iterator[dict[str, Any]]:
    """Rows as control writes them, from events as the first release wrote them."""
    living: dict[str, dict[str, Any]] = {}

    def ended(rule_id: str, at: int) -> Iterator[dict[str, Any]]:
        row = living.pop(rule_id)
        if row["from_revision"] < at:
            yield {**row, "until_revision": at}

    def begin(spec: Any, rank: float, at: int) -> None:
        kind = spec.match.WhichOneof("kind") or ""
        living[spec.rule_id] = {
            "name": f"{spec.rule_id}@{at}",
            "rule_id": spec.rule_id,
            "from_revision": at,
            "until_revision": None,
            "rank": rank,
            "match_kind": kind,
            "match": getattr(spec.match, kind),
            "spec": spec.SerializeToString(deterministic=True),
        }

    for event in changes:
        at = event.position
        for change in event.rule_set_changed.changes:
            match change.WhichOneof("kind"):
                case "created":
                    begin(change.created, change.rank, at)
                case "updated":
                    rank = living[change.updated.rule_id]["rank"]
                    yield from ended(change.updated.rule_id, at)
                    begin(change.updated, rank, at)
                case "moved":
                    row = living[change.moved]
                    yield from ended(change.moved, at)
                    living[change.moved] = {
                        **row, "name": f"{change.moved}@{at}", "from_revision": at, "rank": change.rank
                    }  # fmt: skip
                case _:
                    yield from ended(change.removed, at)
    yield from living.values()
