"""Records as JSON text. Null keys and values are left out, and there is always a correlation id."""

import base64
from collections.abc import Iterable, Iterator

import orjson

from services.sidecar.consuming.instance_values import HeaderShape
from services.sidecar.formats import json_text
from services.sidecar.producing.headers import correlation_ids
from services.sidecar.records import CORRELATION_HEADER, Consumed

_LOWER_CORRELATION_HEADER = CORRELATION_HEADER.lower()
_Shown = dict[str, object]


def record_array(records: Iterable[Consumed], headers: HeaderShape) -> bytes:
    """The records as one array."""
    new_ids = correlation_ids()
    shown = [_shown(record, headers, new_ids) for record in records]
    try:
        return orjson.dumps(shown)
    except TypeError:  # an integer beyond 64 bits, which a schema may well have
        return orjson.dumps([_with_text(one, "key", "value") for one in shown])


def record_lines(records: Iterable[Consumed], headers: HeaderShape) -> Iterator[bytes]:
    """The records as lines, without line ends."""
    new_ids = correlation_ids()
    for record in records:
        shown = _shown(record, headers, new_ids)
        try:
            line = orjson.dumps(shown)
        except TypeError:
            line = orjson.dumps(_with_text(shown, "key", "value"))
        # JSON that was written by others is passed on as it stands; its line breaks can only be white space
        yield line.replace(b"\r", b" ").replace(b"\n", b" ")


def event_batch(records: Iterable[Consumed]) -> bytes:
    """Records whose values are CloudEvents, as a batch of these."""
    events = [record.value for record in records]
    try:
        return orjson.dumps(events)
    except TypeError:
        return orjson.dumps([_with_text(event, "data") if isinstance(event, dict) else event for event in events])


def _shown(record: Consumed, headers: HeaderShape, new_ids: Iterator[bytes]) -> _Shown:
    shown: _Shown = {"topic": record.topic}
    if record.key is not None:
        shown["key"] = record.key
    if record.value is not None:
        shown["value"] = record.value
    if record.key_format:
        shown["keyFormat"] = record.key_format
    if record.value_format:
        shown["valueFormat"] = record.value_format
    shown["headers"] = (_as_map if headers is HeaderShape.MAP else _as_list)(record.headers, new_ids)
    shown["partition"] = record.partition
    shown["offset"] = record.offset
    shown["timestamp"] = record.timestamp
    return shown


def _as_map(headers: list[tuple[str, bytes | None]], new_ids: Iterator[bytes]) -> dict[str, str]:
    """Names and texts; the last of the same name wins, and bytes that are no UTF-8 are replaced."""
    shown = {name: (value or b"").decode(errors="replace") for name, value in headers}
    if not _has_correlation_id(headers):
        shown[CORRELATION_HEADER] = next(new_ids).decode("ascii")
    return shown


def _as_list(headers: list[tuple[str, bytes | None]], new_ids: Iterator[bytes]) -> list[dict[str, str | None]]:
    """Each header as it is in Kafka, bytes as base64 text."""
    shown = [{"key": name, "value": None if value is None else _base64(value)} for name, value in headers]
    if not _has_correlation_id(headers):
        shown.append({"key": CORRELATION_HEADER, "value": _base64(next(new_ids))})
    return shown


def _has_correlation_id(headers: list[tuple[str, bytes | None]]) -> bool:
    return any(name == CORRELATION_HEADER or name.lower() == _LOWER_CORRELATION_HEADER for name, _ in headers)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _with_text(shown: _Shown, *parts: str) -> _Shown:
    """With these members as JSON text, integers of any length."""
    for part in parts:
        value = shown.get(part)
        if value is not None and not isinstance(value, orjson.Fragment):
            shown[part] = orjson.Fragment(json_text.dumps(value))
    return shown
