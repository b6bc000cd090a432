"""Events into Parquet by day, as the tasks that hold them write it: Spark's own writer makes rows of them first.

    FOLDER/_staged/batch=17/day=2026-11-21/NAME.parquet     written by tasks; no reader looks there
    FOLDER/_staged/batch=17/decided.json                    the names of all files, as JSON
    FOLDER/day=2026-11-21/batch=17/NAME.parquet             moved there by the driver, when all are complete

1. Tasks write files of names that no other has, and say which. What a task has left that failed, or that ran twice, is
   named by nobody, and goes with `_staged/batch=17`.
2. When all files are complete, the driver writes their names down beside them. From then on these files are the batch.
   If the driver is killed while it moves them, the next attempt moves the rest and writes nothing: Kafka may have lost
   some of the records meanwhile.
3. A reader finds each event once at any moment; while the driver moves files, some events of the batch are missing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet

from services.pipeline.archives.layout import PARQUET
from services.pipeline.archives.stores import OpenStore, Store
from services.pipeline.auditing.events import COLUMNS, ORIGIN
from services.pipeline.auditing.pieces import well

STAGED = "_staged"
DECIDED = "decided.json"
MOST_ROWS = 100_000
"""Of a file, and in memory at a time: about 50 MB."""
NO_TWO_ALIKE = frozenset(
    ("time", "event_id", "correlation_id", "traceability_id", "trace_id", "offset", "source_offset")
)
"""Columns that hardly have a value twice: to look for it took more of the processors than all else about files."""
DICTIONARIES = [name for name in (*COLUMNS, *ORIGIN) if name not in NO_TWO_ALIKE]
COMPRESSION = "snappy"
NAMED = pyarrow.schema([("day", pyarrow.string()), ("name", pyarrow.string())])


def staged(batch: int) -> str:
    """Where the files of a batch are until they stand among the days."""
    return f"{STAGED}/batch={batch}"


def staged_file(batch: int, day: str, name: str) -> str:
    """Where a task leaves a file, and the driver takes it from."""
    return f"{staged(batch)}/day={day}/{name}"


@dataclass(frozen=True, slots=True)
class DayFiles:
    """What a task has to know to write its share of a batch; goes to Spark's workers."""

    store: Store
    batch: int

    def write(self, pieces: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Rows of NAMED: day and name of each file that is complete. `pieces` have the column of events alone."""
        store = self.store.open()
        named: list[dict[str, str]] = []
        held: list[pyarrow.RecordBatch] = []
        for events in well((*COLUMNS, *ORIGIN, "day"), None, pieces):
            held.append(events)
            if sum(each.num_rows for each in held) >= MOST_ROWS:
                named += self._written(store, held)
                held = []
        named += self._written(store, held)
        yield pyarrow.RecordBatch.from_pylist(named, schema=NAMED)

    def _written(self, store: OpenStore, held: list[pyarrow.RecordBatch]) -> Iterator[dict[str, str]]:
        if not held:
            return
        events = pyarrow.Table.from_batches(held)
        days = events.column("day")
        for day in sorted(compute.unique(days).to_pylist()):
            of_day = events.filter(compute.equal(days, pyarrow.scalar(day, days.type))).drop_columns(["day"])
            name = f"{uuid.uuid4()}{PARQUET}"
            with store.create(staged_file(self.batch, str(day), name)) as file:
                pyarrow.parquet.write_table(of_day, file, compression=COMPRESSION, use_dictionary=DICTIONARIES)
            yield {"day": str(day), "name": name}
