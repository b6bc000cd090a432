"""Writes events to Parquet by day, in the tasks that hold them, because Spark's own writer makes rows of them first.

    FOLDER/_staged/batch=17/day=2026-11-21/NAME.parquet     written by tasks; no reader lists this folder.
    FOLDER/_staged/batch=17/decided.json                    the names of all files, as JSON.
    FOLDER/day=2026-11-21/batch=17/NAME.parquet             moved there by the driver, when all are complete.

1. Tasks write files with unique names, and return the names. A task that failed or ran twice may leave files that no
   result names. These files are deleted with `_staged/batch=17`.
2. When all files are complete, the driver writes their names to `decided.json`. From then on these files are the batch.
   If the driver is killed while it moves them, the next attempt moves the rest and writes nothing. The reason is that
   Kafka may have lost some of the records meanwhile.
3. A reader finds each event at most once at any moment. While the driver moves files, some events of the batch are
   missing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet

from services.pipeline.auditing.events import COLUMNS, ORIGIN
from services.pipeline.auditing.pieces import well
from services.pipeline.storage.layout import PARQUET, STAGE
from services.pipeline.storage.stores import OpenStore, Store

DECIDED = "decided.json"
MOST_ROWS = 100_000
"""Rows of one file, which are also the rows in memory at a time: about 50 MB."""
NO_TWO_ALIKE = frozenset(
    ("time", "event_id", "correlation_id", "traceability_id", "trace_id", "offset", "source_offset")
)
"""Columns with hardly any repeated value: the search for repeats took more CPU than all other work on the files."""
DICTIONARIES = [name for name in (*COLUMNS, *ORIGIN) if name not in NO_TWO_ALIKE]
COMPRESSION = "snappy"
NAMED = pyarrow.schema([("day", pyarrow.string()), ("name", pyarrow.string())])


def staged(batch: int) -> str:
    """The folder with the files of a batch until the driver moves them to the days."""
    return f"{STAGE}/batch={batch}"


def staged_file(batch: int, day: str, name: str) -> str:
    """The path at which a task writes a file, and from which the driver moves it."""
    return f"{staged(batch)}/day={day}/{name}"


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The data that a task needs to write its share of a batch; pickled for Spark's workers."""

    store: Store
    batch: int

    def write(self, pieces: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Yields rows of NAMED: day and name of each complete file. `pieces` have only the column of events."""
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
