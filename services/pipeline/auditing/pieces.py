"""Events on their way from the tasks that read to those that write: a row of Spark's has many, as Arrow writes them.

Spark keeps such *pieces* until all is stored and hands them on, and looks into none. To make rows of events, to keep
these, and to make columns of them again for whoever writes to PostgreSQL, took it as much as all else that it did.
What the driver has to know of a batch stands beside: how many there are, and of which days.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.compute as compute
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from services.pipeline.auditing.events import ARROW_SCHEMA, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIECES = pyarrow.schema(
    [
        ("source_topic", pyarrow.string()),
        ("source_partition", pyarrow.int32()),
        ("records", pyarrow.int64()),
        ("malformed", pyarrow.int64()),
        ("newest", TIME),
        ("days", pyarrow.list_(pyarrow.date32())),
        ("events", pyarrow.binary()),
    ]
)
"""`newest` is Kafka's time; `days` are those of events that are well."""
EVENTS = "events"


def piece_of(events: pyarrow.RecordBatch, topic: str, partition: int) -> pyarrow.RecordBatch:
    """One row of PIECES: these events (rows of ARROW_SCHEMA) of one partition."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, events.schema) as stream:
        stream.write_batch(events)
    about: dict[str, object] = {
        "source_topic": topic,
        "source_partition": partition,
        "records": events.num_rows,
        "malformed": events.num_rows - events.column("problem").null_count,
        "newest": compute.max(events.column("source_time")).as_py(),
        "days": [each for each in compute.unique(events.column("day")).to_pylist() if each is not None],
    }
    about[EVENTS] = sink.getvalue().to_pybytes()
    return pyarrow.RecordBatch.from_pylist([about], schema=PIECES)


def well(
    columns: tuple[str, ...], first_day: date | None, pieces: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Events that are some, of this day and later ones. `pieces` have the column of events alone."""
    for events in _opened(pieces):
        wanted = compute.is_null(events.column("problem"))
        if first_day is not None:
            wanted = compute.and_(wanted, compute.greater_equal(events.column("day"), pyarrow.scalar(first_day)))
        yield events.filter(wanted, null_selection_behavior="drop").select(columns)


def malformed(columns: tuple[str, ...], pieces: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """What is no event. `pieces` have the column of events alone."""
    for events in _opened(pieces):
        yield events.filter(compute.is_valid(events.column("problem"))).select(columns)


def schema_of(columns: tuple[str, ...]) -> StructType:
    """Spark's, of these columns of events."""
    return from_arrow_schema(pyarrow.schema([ARROW_SCHEMA.field(name) for name in columns]))


def events_alone(pieces: DataFrame) -> DataFrame:
    """What `well` and `malformed` take."""
    return pieces.select(EVENTS)


def _opened(pieces: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for some in pieces:
        for piece in some.column(EVENTS):
            with pyarrow.ipc.open_stream(piece.as_buffer()) as stream:
                yield from stream
