"""Tables of the lag of groups over time. The leading control writes them; they do not follow from the log."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY

from services.control.store.schema import metadata

# A group and a topic that it reads; the key is a digest of both names.
group_lag_series = Table(
    "group_lag_series",
    metadata,
    Column("series", Uuid, primary_key=True),
    Column("group_name", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Index("group_lag_series_names", "group_name", "topic"),
)

# The state of a series at a time. A series whose state stays the same has a row in five minutes.
group_lag_samples = Table(
    "group_lag_samples",
    metadata,
    Column("series", Uuid, primary_key=True),
    Column("time", DateTime(timezone=True), primary_key=True),
    # one in five minutes, which is kept for longer
    Column("lasts", Boolean, nullable=False),
    # the partitions with a committed offset and a known end; the other lists have their order
    Column("partitions", ARRAY(Integer), nullable=False),
    # the offset that the group reads next: the committed one, or the first one that retention has left
    Column("positions", ARRAY(BigInteger), nullable=False),
    Column("ends", ARRAY(BigInteger), nullable=False),
    Index("group_lag_samples_time", "lasts", "time"),
)

# The last samples of all groups.
group_lag_rounds = Table(
    "group_lag_rounds",
    metadata,
    Column(
        "id",
        SmallInteger,
        CheckConstraint("id = 1", name="group_lag_rounds_one_row"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("groups", BigInteger, nullable=False),
    Column("partitions", BigInteger, nullable=False),
    Column("left_out_groups", BigInteger, nullable=False),
    Column("left_out_partitions", BigInteger, nullable=False),
    Column("problem", Text, nullable=False),
)
