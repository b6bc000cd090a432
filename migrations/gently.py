"""Steps of a migration that keep nobody else waiting, and that go on where a run before broke off.

Use: `with one_by_one():`, and in it the other functions. Their statements hold no lock that readers or writers of a
table have to wait for, however large it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op
from sqlalchemy.exc import IntegrityError

BATCH = 5_000
"""Rows of one deletion."""
TRIES = 5
"""Of a unique index: what is in its way may be written while it is made."""
LONGEST_MS = 3_600_000
"""Of one statement that keeps nobody waiting."""
PARTITIONS = "select inhrelid::regclass::text from pg_inherits where inhparent = cast(:table as regclass) order by 1"
VALID = "select indisvalid from pg_index where indexrelid = to_regclass(:index)"


@contextmanager
def one_by_one() -> Iterator[None]:
    """In here each statement is a transaction of its own."""
    with op.get_context().autocommit_block():
        before = op.get_bind().scalar(sa.text("show statement_timeout"))
        op.execute(f"set statement_timeout = {LONGEST_MS}")
        try:
            yield
        finally:
            op.execute(f"set statement_timeout = '{before}'")


def partitions_of(table: str) -> list[str]:
    return [name for (name,) in op.get_bind().execute(sa.text(PARTITIONS), {"table": table})]


def is_there(table: str) -> bool:
    """It may have been dropped meanwhile, as days are that are too old."""
    return op.get_bind().scalar(sa.text("select to_regclass(:table)"), {"table": table}) is not None


def make_index(index: str, on: str, *, unique: bool = False, obstacles: Callable[[], None] = lambda: None) -> None:
    """`on`: table, columns and condition. `obstacles` removes what a unique index refuses."""
    for left in reversed(range(TRIES)):
        if _is_valid(index):
            return
        op.execute(f"drop index concurrently if exists {index}")  # of a run that broke off
        obstacles()
        try:
            op.execute(f"create {'unique ' if unique else ''}index concurrently {index} on {on}")
        except IntegrityError:
            if not left:
                raise


def delete(table: str, key: str, wanted: str) -> None:
    """Rows of a table whose key the query `wanted` gives, some at a time. `key`: columns, with commas."""
    op.execute("drop table if exists pg_temp.doomed")
    op.execute(f"create temp table doomed as {wanted}")
    taken = f"delete from doomed where ctid = any(array(select ctid from doomed limit {BATCH})) returning {key}"
    gone = f"delete from {table} where ({key}) in (select {key} from taken)"
    while op.get_bind().scalar(sa.text(f"with taken as ({taken}), gone as ({gone}) select count(*) from taken")):
        pass
    op.execute("drop table doomed")


def _is_valid(index: str) -> bool:
    return bool(op.get_bind().scalar(sa.text(VALID), {"index": index}))
