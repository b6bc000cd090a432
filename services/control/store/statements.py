"""Statements that are ready before a transaction begins: the SQL, and its values.

The rows of a statement travel as one JSON text. So a statement takes any number of rows, and its SQL is always the
same: PostgreSQL plans the statement once for each connection. The types of the columns read the values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Column, Table

Row = dict[str, Any]

ROWS_AT_ONCE = 5_000
"""Rows of one statement. So many rows take a fraction of the time that a statement may take."""


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with a place `%s` for each value; a writing statement names the table that it writes."""

    sql: bytes
    values: tuple[Any, ...] = ()
    table: str = ""


def key_of(table: Table) -> Column[Any]:
    """The primary key, which is one column in every projection."""
    [column] = table.primary_key.columns
    return column


def insert_rows(table: Table, rows: Sequence[Row]) -> Iterator[Statement]:
    """Adds rows, which all have the same columns, in their order."""
    for some in _portions(rows):
        yield Statement(_insertion(table, tuple(some[0])), (_as_json(some),), table.name)


def put_row(table: Table, row: Row) -> Statement:
    """Adds a row, or takes the place of the row with the same primary key."""
    return Statement(_replacement(table, tuple(row)), (_as_json([row]),), table.name)


def amend_row(table: Table, key: object, values: Row) -> Statement:
    """Sets values in the row with this primary key."""
    return Statement(_amendment(table, tuple(values)), (_as_json([values]), key), table.name)


def delete_rows(table: Table, keys: Sequence[object]) -> Iterator[Statement]:
    """Deletes the rows with these primary keys."""
    sql = f'delete from {table.name} where "{key_of(table).name}" = any(%s)'.encode()
    for some in _portions(keys):
        yield Statement(sql, (list(some),), table.name)


def merged(writes: Sequence[Statement], last: Statement) -> list[Statement]:
    """The writes and a query behind them as one statement: each statement costs a message to PostgreSQL and back.

    PostgreSQL carries out parts of a statement in no promised order, and no part sees another part. So statements that
    write the same table stay apart, in their order.
    """
    if not writes or len({each.table for each in writes}) < len(writes):
        return [*writes, last]
    parts = ", ".join(f"part_{number} as ({each.sql.decode()})" for number, each in enumerate(writes))
    values = tuple(value for each in (*writes, last) for value in each.values)
    return [Statement(f"with {parts} {last.sql.decode()}".encode(), values)]


def _portions(all_of_them: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(all_of_them), ROWS_AT_ONCE):
        yield all_of_them[start : start + ROWS_AT_ONCE]


@cache
def _insertion(table: Table, columns: tuple[str, ...]) -> bytes:
    names = ", ".join(f'"{name}"' for name in columns)
    rows = f"json_populate_recordset(null::{table.name}, %s) with ordinality"
    return f"insert into {table.name} ({names}) select {names} from {rows} order by ordinality".encode()


@cache
def _replacement(table: Table, columns: tuple[str, ...]) -> bytes:
    changed = ", ".join(f'"{name}" = excluded."{name}"' for name in columns)
    conflict = f' on conflict ("{key_of(table).name}") do update set {changed}'
    return _insertion(table, columns) + conflict.encode()


@cache
def _amendment(table: Table, columns: tuple[str, ...]) -> bytes:
    changed = ", ".join(f'"{name}" = new."{name}"' for name in columns)
    new = f"json_populate_recordset(null::{table.name}, %s) as new"
    return f'update {table.name} set {changed} from {new} where {table.name}."{key_of(table).name}" = %s'.encode()


def _as_json(rows: Sequence[Row]) -> str:
    return json.dumps(rows, default=_plain)


def _plain(value: object) -> str:
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case _:
            raise TypeError(f"a row can't hold {type(value).__name__}")
