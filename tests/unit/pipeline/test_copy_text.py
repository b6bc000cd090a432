"""Columns of Arrow as PostgreSQL's COPY reads them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

AT = datetime(2026, 11, 21, 23, 59, 59, 123456, UTC)


def lines(**columns: object) -> bytes:
    from services.pipeline.postgres.copy_text import copy_text

    return copy_text(pyarrow.RecordBatch.from_pydict(columns))


def test_a_row_is_a_line_and_what_is_missing_is_told_from_empty_texts_and_from_backslash_n() -> None:
    times = pyarrow.array([AT, None, AT], pyarrow.timestamp("us", tz="UTC"))
    given = lines(number=pyarrow.array([1, None, -3]), text=["a", "", "\\N"], time=times, flag=[True, None, False])
    assert given == (
        b"1\ta\t2026-11-21 23:59:59.123456\ttrue\n"
        b"\\N\t\t\\N\t\\N\n"
        b"-3\t\\\\N\t2026-11-21 23:59:59.123456\tfalse\n"
    )  # fmt: skip


def test_what_ends_fields_and_rows_is_escaped_and_nul_is_left_out() -> None:
    assert lines(text=["a\tb\nc\rd\\e\x00f", "ü"]) == b"a\\tb\\nc\\rd\\\\ef\n\xc3\xbc\n"


def test_what_is_no_utf_8_is_replaced() -> None:
    text = pyarrow.StringArray.from_buffers(1, pyarrow.py_buffer(b"\0\0\0\0\3\0\0\0"), pyarrow.py_buffer(b"a\xffb"))
    assert lines(text=text) == "a\ufffdb\n".encode()


def test_a_part_of_a_batch_is_its_rows_alone_and_none_is_nothing() -> None:
    from services.pipeline.postgres.copy_text import copy_text

    batch = pyarrow.RecordBatch.from_pydict({"number": [1, 2, 3], "text": ["a", "b", "c"]})
    assert [copy_text(batch.slice(*part)) for part in ((1, 1), (1,), (3,))] == [b"2\tb\n", b"2\tb\n3\tc\n", b""]
