"""Statements that are ready before a transaction begins: the SQL, and its values.

The rows of a statement travel as one JSON text. So a statement takes any number of rows, and its SQL is always the
same: PostgreSQL plans the statement once for each connection. The types of the columns read the values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
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
    rows: int = 0
    """The number of rows, if the only value is the list of them, and more rows may join the list."""
    keys: frozenset[Any] = frozenset()
    """The rows that it may replace: no row is replaced twice by one statement."""


def key_of(table: Table) -> Column[Any]:
    """The primary key, which is one column in every projection."""
    [column] = table.primary_key.columns
    return column


def insert_rows(table: Table, rows: Sequence[Row]) -> Iterator[Statement]:
    """Adds rows, which all have the same columns, in their order."""
    for some in _portions(rows):
        yield Statement(_insertion(table, tuple(some[0])), (_as_json(some),), table.name, len(some))


def insert_rows_behind(lock: int, table: Table, rows: Sequence[Row]) -> Iterator[Statement]:
    """The same, under an advisory lock that the transaction takes before the rows get their numbers."""
    for some in _portions(rows):
        yield Statement(_insertion_behind(lock, table, tuple(some[0])), (_as_json(some),), table.name, len(some))


def add_rows(table: Table, rows: Sequence[Row]) -> Iterator[Statement]:
    """Adds the rows whose primary keys the table does not have."""
    for some in _portions(rows):
        sql = _insertion(table, tuple(some[0])) + b" on conflict do nothing"
        yield Statement(sql, (_as_json(some),), table.name)


def put_row(table: Table, row: Row) -> Statement:
    """Adds a row, or takes the place of the row with the same primary key."""
    key = row.get(key_of(table).name)
    sql, values = _replacement(table, tuple(row)), (_as_json([row]),)
    return Statement(sql, values, table.name, 0 if key is None else 1, frozenset({key}))


def amend_row(table: Table, key: object, values: Row) -> Statement:
    """Sets values in the row with this primary key."""
    return Statement(_amendment(table, tuple(values)), (_as_json([values]), key), table.name)


def delete_rows(table: Table, keys: Sequence[object]) -> Iterator[Statement]:
    """Deletes the rows with these primary keys."""
    sql = f'delete from {table.name} where "{key_of(table).name}" = any(%s)'.encode()
    for some in _portions(keys):
        yield Statement(sql, (list(some),), table.name, len(some))


def joined(statements: Iterable[Statement]) -> list[Statement]:
    """Joins the rows of several events into fewer statements; each table sees its statements in their order."""
    found: list[Statement] = []
    last: dict[str, int] = {}
    for each in statements:
        place = last.get(each.table)
        if place is not None and _may_join(found[place], each):
            found[place] = _join(found[place], each)
        else:
            last[each.table] = len(found)
            found.append(each)
    return found


def _may_join(one: Statement, other: Statement) -> bool:
    fits = one.rows > 0 and other.rows > 0 and one.rows + other.rows <= ROWS_AT_ONCE
    return fits and one.sql == other.sql and one.keys.isdisjoint(other.keys)


def _join(one: Statement, other: Statement) -> Statement:
    [ours], [theirs] = one.values, other.values
    together = f"{ours[:-1]}, {theirs[1:]}" if isinstance(ours, str) else [*ours, *theirs]
    return Statement(one.sql, (together,), one.table, one.rows + other.rows, one.keys | other.keys)


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
def _insertion_behind(lock: int, table: Table, columns: tuple[str, ...]) -> bytes:
    """The rows come from a join with the lock, so that PostgreSQL has the lock before the first row."""
    locked = f"(select pg_advisory_xact_lock({lock})) as locked"
    return _insertion(table, columns).replace(b" from ", f" from {locked}, ".encode(), 1)


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


def _plain(value: object) -> str:
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case _:
            raise TypeError(f"a row can't hold {type(value).__name__}")


_as_json = json.JSONEncoder(default=_plain).encode
"""Made once: `json.dumps` makes an encoder for each call."""
