"""Writes rows of a DataFrame to a PostgreSQL table that control's migrations have created.

    written = write_rows(frame, AUDIT_EVENTS, database)

1. Rows come to a worker as Arrow columns and become COPY's text (`copy_text.py`), without a loop over the rows.
2. Each partition is one transaction: COPY into a temporary table, then one INSERT. The table's `Conflict` decides about
   a row whose key exists: the existing row stays (`Conflict.KEEP`), or gets the new values (`Conflict.SET`). In both
   cases the rows of a repeated batch are there once, after the kill of a driver or the second try of a task. (COPY
   directly into the table, with this procedure only for existing rows, is no gain. PostgreSQL took 33 to 40 us of CPU a
   row for it, not 27 to 35.)
3. Rows are inserted in the order of their key. So writers of the same rows wait for each other, but never in a
   deadlock. With `Conflict.SET` the keys of a frame must differ.
4. There are never more connections at once than `Database.connections`, for any number of Spark's slots. Every wait has
   a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import psycopg
import pyarrow
from psycopg import sql
from pyspark.sql import DataFrame

from services.pipeline.postgres.copy_text import copy_text, for_copy

CONNECT_TIMEOUT_S = 5
STATEMENT_TIMEOUT_MS = 120_000  # a large partition on a busy database
LOCK_TIMEOUT_MS = 10_000
MEMORY = "64MB"  # of a connection, twice: for incoming rows, and for sorting
IDLE_TIMEOUT_MS = 60_000  # the time that Spark may take for more rows of a partition
OPTIONS = (
    f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} "
    f"-c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS} -c timezone=UTC "
    f"-c temp_buffers={MEMORY} -c work_mem={MEMORY}"
)
INCOMING = sql.Identifier("incoming_rows")
COUNTS = "given bigint, stored bigint"
ARROW_COUNTS = pyarrow.schema([("given", pyarrow.int64()), ("stored", pyarrow.int64())])
Opened = Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL database. Pickled for Spark's workers; its repr hides the URL."""

    url: str = field(repr=False)
    connections: int = 4
    """Connections of the tasks of one batch at once."""

    def connect(self, application: str = "kafka-mesh pipeline") -> psycopg.Connection[tuple[object, ...]]:
        """A connection with time-outs for every wait; psycopg.OperationalError if there is none."""
        return psycopg.connect(
            self.url,
            connect_timeout=CONNECT_TIMEOUT_S,
            options=OPTIONS,
            application_name=application,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=20_000,
        )


class Conflict(Enum):
    """The action for a row that exists already."""

    KEEP = "do nothing"
    """The existing row stays, whichever unique index finds it."""
    SET = "set"
    """The existing row with the same key gets the new values."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, as a job writes it."""

    name: str
    key: tuple[str, ...]
    """Rows are inserted in the order of these columns. With `Conflict.SET` they are the columns of a unique index."""
    columns: tuple[str, ...]
    """The written columns, including the key; the frame has columns of the same names."""
    on_conflict: Conflict = Conflict.KEEP


@dataclass(frozen=True, slots=True)
class Written:
    """The number of given and of stored rows."""

    given: int
    stored: int
    """Rows that were new, and rows that were set."""


def write_rows(rows: DataFrame, table: Table, database: Database) -> Written:
    """Writes all rows; they are committed when it returns. If it raises, some partitions may be committed."""
    return write_opened(rows.select(*for_copy(rows, table.columns)), iter, table, database)


def write_opened(packed: DataFrame, opened: Opened, table: Table, database: Database) -> Written:
    """Like `write_rows`; `opened` makes the rows: the table's columns, in their order, none of them binary."""
    slots = min(packed.sparkSession.sparkContext.defaultParallelism, database.connections)
    write = partial(_write_partition, table, database, opened)
    counts = packed.coalesce(slots).mapInArrow(write, COUNTS).collect()
    return Written(sum(each["given"] for each in counts), sum(each["stored"] for each in counts))


def _write_partition(
    table: Table, database: Database, opened: Opened, packed: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Writes one partition, in a worker of Spark."""
    batches = opened(packed)
    first = next((each for each in batches if each.num_rows), None)
    if first is None:
        return
    given = first.num_rows
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(_make_incoming(table))
        with cursor.copy(sql.SQL("copy {} from stdin").format(INCOMING)) as copy:
            copy.write(copy_text(first))
            for batch in batches:
                given += batch.num_rows
                copy.write(copy_text(batch))
        cursor.execute(_insert(table))
        stored = cursor.rowcount
    yield pyarrow.RecordBatch.from_pylist([{"given": given, "stored": stored}], schema=ARROW_COUNTS)


def _make_incoming(table: Table) -> sql.Composed:
    return sql.SQL("create temporary table {} on commit drop as select {} from {} with no data").format(
        INCOMING, _names(table.columns), sql.Identifier(table.name)
    )


def _insert(table: Table) -> sql.Composed:
    columns, key = _names(table.columns), _names(table.key)
    action: sql.Composable = sql.SQL("do nothing")
    if table.on_conflict is Conflict.SET:
        others = [sql.Identifier(each) for each in table.columns if each not in table.key]
        action = sql.SQL("({}) do update set ").format(key) + sql.SQL(", ").join(
            sql.SQL("{} = excluded.{}").format(each, each) for each in others
        )
    return sql.SQL("insert into {} ({}) select {} from {} order by {} on conflict {}").format(
        sql.Identifier(table.name), columns, columns, INCOMING, key, action
    )


def _names(columns: tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
