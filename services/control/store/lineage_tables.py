"""Tables of lineage. The leading control writes them; they do not follow from the log."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    SmallInteger,
    Table,
    Text,
    Uuid,
)

from services.control.store.schema import metadata

# The key is a digest of source, target, kind and rule.
lineage_edges = Table(
    "lineage_edges",
    metadata,
    Column("edge", Uuid, primary_key=True),
    # a node, as "KIND:NAME"
    Column("source", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("first_time", DateTime(timezone=True), nullable=False),
    # the last time that control saw the edge; an edge that is present has a row in five minutes
    Column("time", DateTime(timezone=True), nullable=False),
    Column("present", Boolean, nullable=False),
    Index("lineage_edges_source", "source"),
    Index("lineage_edges_target", "target"),
)

# The last look of control.
lineage_looks = Table(
    "lineage_looks",
    metadata,
    Column(
        "id",
        SmallInteger,
        CheckConstraint("id = 1", name="lineage_looks_one_row"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("edges", BigInteger, nullable=False),
    Column("left_out", BigInteger, nullable=False),
    Column("problem", Text, nullable=False),
)
