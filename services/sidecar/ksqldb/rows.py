"""Rows as the backend gets them: one, or a batch, as arrays or as objects. No I/O."""

from collections.abc import Sequence
from enum import Enum

import orjson

from services.sidecar import json_text
from services.sidecar.ksqldb.frames import Header, Row


class RowFormat(Enum):
    """What a row looks like."""

    ARRAY = "array"
    """The original's: the values of the columns, without their names."""
    OBJECT = "object"
    """Values by their columns' names."""


def body_of(header: Header, rows: Sequence[Row], format_: RowFormat, *, batched: bool) -> bytes:
    """What is posted: the row itself, or where `batched`, an array of rows."""
    shown = [_shown(header, row, format_) for row in rows]
    if batched:
        return b"[" + b",".join(shown) + b"]"
    [one] = shown
    return one


def _shown(header: Header, row: Row, format_: RowFormat) -> bytes:
    """Numbers are passed on as the server wrote them, as far as they stand in an array."""
    if format_ is RowFormat.ARRAY:
        return orjson.dumps(orjson.Fragment(row.text))
    return json_text.dumps(dict(zip(header.columns, row.values(), strict=False)))
