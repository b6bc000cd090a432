"""Converts columns of Spark to the text that PostgreSQL's COPY reads, without a loop over the rows.

    frame.select(*for_copy(frame, names)).mapInArrow(... copy_text(batch) ...)

Spark passes the columns on unchanged, and Arrow makes lines of them in a worker. Arrow searches a column once for
characters to escape; Spark's functions would search each text five times.
"""

from __future__ import annotations

import pyarrow
import pyarrow.compute
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

ESCAPES = (("\x00", ""), ("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
"""Replaced in this order. PostgreSQL's texts hold no NUL."""
NEEDS_ESCAPE = r"[\x00\\\n\r\t]"
NULL = "\\N"


def for_copy(rows: DataFrame, columns: tuple[str, ...]) -> list[Column]:
    """The columns for `copy_text`; binary columns become PostgreSQL's text form of bytea."""
    binary = {each.name for each in rows.schema.fields if isinstance(each.dataType, BinaryType)}
    return [
        f.concat(f.lit("\\x"), f.hex(name)).alias(name) if name in binary else f.col(name).alias(name)
        for name in columns
    ]


def copy_text(batch: pyarrow.RecordBatch) -> bytes:
    """All rows of a batch, one line for each."""
    if not batch.num_rows:
        return b""
    join = pyarrow.compute.binary_join_element_wise
    lines = join(*map(_texts, batch.columns), "\t", null_handling="replace", null_replacement=NULL)
    return _content(join(lines, "", "\n"))


def _texts(column: pyarrow.Array) -> pyarrow.Array:
    if pyarrow.types.is_timestamp(column.type):
        column = column.cast(pyarrow.timestamp(column.type.unit))  # in UTC, like the connection
    if not pyarrow.types.is_string(column.type):
        return column.cast(pyarrow.string())
    try:
        column.validate(full=True)
    except pyarrow.ArrowInvalid:
        column = _valid(column)
    if not pyarrow.compute.any(pyarrow.compute.match_substring_regex(column, NEEDS_ESCAPE)).as_py():
        return column
    for character, escaped in ESCAPES:
        column = pyarrow.compute.replace_substring(column, character, escaped)
    return column


def _valid(column: pyarrow.Array) -> pyarrow.Array:
    """Replaces invalid UTF-8 by U+FFFD."""
    values = column.cast(pyarrow.binary()).to_pylist()
    return pyarrow.array(
        [value if value is None else value.decode(errors="replace") for value in values], pyarrow.string()
    )


def _content(texts: pyarrow.Array) -> bytes:
    """All texts of an Arrow array, which stores them one behind the other."""
    _, starts, content = texts.buffers()
    begin, end = (memoryview(starts).cast("i")[texts.offset + at] for at in (0, len(texts)))
    return bytes(memoryview(content)[begin:end])
