"""Tables of what members report. They do not follow from the log."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Index, LargeBinary, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from services.control.store.schema import metadata

# Reports of the last days: the history of members, and the stream by which replicas follow each other.
member_reports = Table(
    "member_reports",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    # instances/{group}.{instance} or replays/{replay}
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("actor", Text, nullable=False),
    # the mesh.v1.Report
    Column("body", LargeBinary, nullable=False),
    Index("member_reports_name", "name", "sequence"),
    Index("member_reports_time", "time"),
)

# The number of the last report. A control that adds a report locks this row, so it knows all reports before.
member_report_head = Table(
    "member_report_head",
    metadata,
    Column(
        "id",
        SmallInteger,
        CheckConstraint("id = 1", name="member_report_head_one_row"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("sequence", BigInteger, nullable=False),
)

# The state that follows from all reports, for each instance that exists.
consumer_instances = Table(
    "consumer_instances",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sidecar", Text, nullable=False),
    Column("instance", JSONB, nullable=False),
    Column("update_time", DateTime(timezone=True), nullable=False),
)

# The state that follows from all reports, for each replay that is open.
replay_progress = Table(
    "replay_progress",
    metadata,
    # replays/{replay}
    Column("name", Text, primary_key=True),
    # a mesh.v1.ReplayProgressed with all partitions
    Column("body", LargeBinary, nullable=False),
    Column("update_time", DateTime(timezone=True), nullable=False),
)
