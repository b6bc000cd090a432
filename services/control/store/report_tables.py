"""Tables of what members report. They do not follow from the log."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Index, LargeBinary, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from services.control.store.schema import metadata

# Reports of the last days: what happened when, and what replicas follow each other by.
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

# The last report of all: locked by whoever adds one, so that each is added by one that knows all before it.
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

# What all reports come to, of instances that are there.
consumer_instances = Table(
    "consumer_instances",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sidecar", Text, nullable=False),
    Column("instance", JSONB, nullable=False),
    Column("update_time", DateTime(timezone=True), nullable=False),
)

# The same of replays that are open.
replay_progress = Table(
    "replay_progress",
    metadata,
    # replays/{replay}
    Column("name", Text, primary_key=True),
    # a mesh.v1.ReplayProgressed with all partitions
    Column("body", LargeBinary, nullable=False),
    Column("update_time", DateTime(timezone=True), nullable=False),
)
