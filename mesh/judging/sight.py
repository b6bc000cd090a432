"""The part of a record that an expression sees: only the names that the expression mentions are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from mesh.judging.records import Record
from mesh.judging.values import UnreadableError, ValueReader
from mesh.record_expressions import Expression, Facts, UndecidedError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_MS = (datetime(1, 1, 2, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
_LATEST_MS = (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
"""What CEL has timestamps for; Kafka takes any 64 bits."""


class Seen(NamedTuple):
    """One record as expressions see it."""

    known: Mapping[str, object] | Facts
    obstacle: str
    """Why `value` is not among what is known, though somebody speaks of it; else empty."""


class Sight:
    """Reads from each record the names that these expressions mention. Readers of values may raise their own errors."""

    def __init__(self, expressions: Iterable[Expression], read_value: ValueReader) -> None:
        asking = list(expressions)
        self._is_asked_often = len(asking) > 1
        names = frozenset(name for expression in asking for name in expression.names)
        self._parts = [(name, part) for name, part in _PARTS.items() if name in names]
        self._read_value = read_value if "value" in names else None

    def __call__(self, record: Record) -> Seen:
        known: dict[str, object] = {}
        for name, part in self._parts:
            known[name] = part(record)
        obstacle = ""
        if self._read_value:
            value = record.value()
            try:
                known["value"] = None if value is None else self._read_value(value)
            except UnreadableError as error:
                obstacle = str(error)
        return Seen(Facts(known) if self._is_asked_often else known, obstacle)


def holds(expression: Expression, seen: Seen) -> bool:
    """Whether the expression is true of the record; UndecidedError says why it can't be said."""
    try:
        return expression(seen.known)
    except UndecidedError as error:
        if error.needs == "value" and seen.obstacle:
            raise UndecidedError(seen.obstacle) from None
        raise


def _key(record: Record) -> str | bytes | None:
    key = record.key()
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _headers(record: Record) -> dict[str, str]:
    """Name -> text; the last one of a name counts. Null is an empty text."""
    headers: Sequence[tuple[str, bytes | None]] = record.headers() or ()
    return {name: value.decode(errors="replace") if value else "" for name, value in headers}


def _timestamp(record: Record) -> datetime:
    return EPOCH + timedelta(milliseconds=max(_EARLIEST_MS, min(record.timestamp()[1], _LATEST_MS)))


_PARTS: dict[str, Callable[[Record], object]] = {
    "key": _key,
    "headers": _headers,
    "topic": lambda record: record.topic(),
    "partition": lambda record: record.partition(),
    "offset": lambda record: record.offset(),
    "timestamp": _timestamp,
}
