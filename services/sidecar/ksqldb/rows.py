"""Rows in the backend's form: one row or a batch, as arrays or as objects. No I/O."""

from collections.abc import Sequence
from enum import Enum

import orjson

from services.sidecar.formats import json_text
from services.sidecar.ksqldb.frames import Header, Row


class RowFormat(Enum):
    """The form of a row."""

    ARRAY = "array"
    """The original's: the values of the columns, without their names."""
    OBJECT = "object"
    """Values by their columns' names."""


def body_of(header: Header, rows: Sequence[Row], format_: RowFormat, *, batched: bool) -> bytes:
    """The body of a post: the row itself, or if `batched`, an array of rows."""
    shown = [_shown(header, row, format_) for row in rows]
    if batched:
        return b"[" + b",".join(shown) + b"]"
    [one] = shown
    return one


def _shown(header: Header, row: Row, format_: RowFormat) -> bytes:
    """A row as JSON. In an array, numbers stay as the server wrote them."""
    if format_ is RowFormat.ARRAY:
        return orjson.dumps(orjson.Fragment(row.text))
    return json_text.dumps(dict(zip(header.columns, row.values(), strict=False)))
