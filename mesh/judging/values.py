"""Reads values of records into what expressions see as `value`: JSON documents."""

from __future__ import annotations

from collections.abc import Callable

import orjson

LARGEST_VALUE = 16 * 1024 * 1024
"""Bytes that are read for an expression or a redaction; it takes some 100 ms of CPU then."""
ValueReader = Callable[[bytes], object]
"""Raises UnreadableError, or an error of its own where it needs what does not answer."""


class UnreadableError(Exception):
    """A value that is not what the rule says; the message says why, without a part of it."""


def read_json(value: bytes) -> object:
    """The document; UnreadableError when it is none."""
    check_size(value)
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise UnreadableError(f"the value is not JSON: {error.msg} (character {error.pos + 1})") from None


def check_size(value: bytes) -> None:
    """UnreadableError when the value is larger than anything that is read."""
    if len(value) > LARGEST_VALUE:
        raise UnreadableError(f"the value has {len(value)} bytes; values are read up to {LARGEST_VALUE}")
