"""Statements that are made before a transaction begins: how many there are, and which of them travel as one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from services.control.store import statements
from services.control.store.schema import clusters, outbox, rollouts
from services.control.store.statements import Statement, delete_rows, insert_rows, merged, put_row

NOTICE = Statement(b"select %s", ("5",))


def test_writes_of_different_tables_travel_as_one_statement() -> None:
    writes = [*insert_rows(clusters, [{"name": "c1"}]), put_row(rollouts, {"revision": 5})]
    [one] = merged(writes, NOTICE)
    assert one.values == (*writes[0].values, *writes[1].values, "5")
    assert one.sql.count(b"%s") == 3
    assert one.sql.endswith(NOTICE.sql)


def test_a_row_is_deleted_by_a_statement_of_its_own_before_it_is_inserted_again() -> None:
    writes = [*delete_rows(clusters, ["c1"]), *insert_rows(clusters, [{"name": "c1"}])]
    assert merged(writes, NOTICE) == [*writes, NOTICE]


def test_a_notice_without_writes_stays_as_it_is() -> None:
    assert merged([], NOTICE) == [NOTICE]


def test_many_rows_are_written_by_few_statements_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "ROWS_AT_ONCE", 2)
    found = list(insert_rows(clusters, [{"name": name} for name in "abc"]))
    assert [each.values for each in found] == [('[{"name": "a"}, {"name": "b"}]',), ('[{"name": "c"}]',)]
    assert [each.values for each in delete_rows(clusters, ["a", "b", "c"])] == [(["a", "b"],), (["c"],)]


def test_times_and_bytes_are_written_as_postgresql_reads_them() -> None:
    row = {"time": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "hash": b"\x00\xff"}
    assert put_row(outbox, row).values == ('[{"time": "2026-01-02T03:04:05.000006+00:00", "hash": "\\\\x00ff"}]',)


def test_a_value_that_no_column_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="a row can't hold object"):
        put_row(outbox, {"position": object()})
