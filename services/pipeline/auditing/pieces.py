"""Events on their way from the tasks that read to the tasks that write: one row of Spark has many, as an Arrow stream.

Spark keeps such *pieces* until all is stored and passes them on without parsing them. Rows of events would cost Spark
as much CPU as all its other work. Spark would make the rows, keep them, and make columns of them again for the task
that writes to PostgreSQL. The other columns of a piece have the facts that the driver needs: the number of events, and
their days.
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
"""`newest` is Kafka's time; `days` are the days of well-formed events."""
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
    """The well-formed events, of this day and later ones. `pieces` have only the column of events."""
    for events in _opened(pieces):
        wanted = compute.is_null(events.column("problem"))
        if first_day is not None:
            wanted = compute.and_(wanted, compute.greater_equal(events.column("day"), pyarrow.scalar(first_day)))
        yield events.filter(wanted, null_selection_behavior="drop").select(columns)


def malformed(columns: tuple[str, ...], pieces: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """The malformed events. `pieces` have only the column of events."""
    for events in _opened(pieces):
        yield events.filter(compute.is_valid(events.column("problem"))).select(columns)


def schema_of(columns: tuple[str, ...]) -> StructType:
    """Spark's schema of these columns of events."""
    return from_arrow_schema(pyarrow.schema([ARROW_SCHEMA.field(name) for name in columns]))


def events_alone(pieces: DataFrame) -> DataFrame:
    """The pieces as `well` and `malformed` take them."""
    return pieces.select(EVENTS)


def _opened(pieces: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for some in pieces:
        for piece in some.column(EVENTS):
            with pyarrow.ipc.open_stream(piece.as_buffer()) as stream:
                yield from stream
