"""Converts audit records to Arrow columns of one shape: JSON of sidecars and gateways, and control's calls.

This module runs in Spark's workers, which read Kafka: Spark never sees the JSON. Only the parsing handles each value by
itself, because other programs write the JSON. All other checks and conversions work on whole columns.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import orjson
import pyarrow
import pyarrow.compute as compute
from confluent_kafka import Message
from google.protobuf.message import DecodeError

from mesh.rpc import admin

COLUMNS = (
    "time", "event_id", "cluster_name", "service_id", "audit_type", "audit_status", "topic", "partition", "offset",
    "correlation_id", "traceability_id", "trace_id", "key", "stacktrace", "actor", "method",
)  # fmt: skip
"""Columns of an event; `time` is the writer's."""
ORIGIN = ("source_topic", "source_partition", "source_offset", "source_time")
"""Columns with the position of the record in Kafka."""
RAW = ("raw_key", "raw_value", "raw_headers")
"""Columns with the record as it was read, if it is no event: its other columns are not known then."""

TEXTS = {
    "service_id": ("serviceId", 256),
    "audit_type": ("auditType", 64),
    "audit_status": ("auditStatus", 64),
    "topic": ("topic", 249),
    "correlation_id": ("correlationId", 256),
    "traceability_id": ("traceabilityId", 256),
    "trace_id": ("traceId", 256),
    "key": ("key", 4_096),
    "stacktrace": ("stacktrace", 16_384),
    "actor": ("actor", 256),
    "method": ("method", 256),
}
"""For each column: the name in the sidecar's JSON, and the most characters that are kept for an index."""
TIME = pyarrow.timestamp("us", tz="UTC")
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
NUMBERS = {"partition": pyarrow.int32(), "offset": pyarrow.int64()}
ARROW_SCHEMA = pyarrow.schema(
    [
        *((name, {"time": TIME, **NUMBERS}.get(name, pyarrow.string())) for name in COLUMNS),
        ("source_topic", pyarrow.string()),
        ("source_partition", pyarrow.int32()),
        ("source_offset", pyarrow.int64()),
        ("source_time", TIME),
        ("day", pyarrow.date32()),
        ("problem", pyarrow.string()),
        ("raw_key", pyarrow.binary()),
        ("raw_value", pyarrow.binary()),
        ("raw_headers", HEADERS),
    ]
)
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
AHEAD = timedelta(days=1)
"""The most that a writer's clock may be ahead of Kafka's timestamp."""
LAST_TIME_MS = 253_402_300_799_999
"""The end of the year 9999. A later time is an error in Python and would end the job; Kafka accepts any time."""
NO_OBJECT = "it is no JSON object"
CALL_TYPE, CONTROL = "CONTROL", "control"
TOO_DEEP = "a member is too deep to be shown"
LONGEST_INT = 2**63 - 1
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")


@dataclass(frozen=True, slots=True)
class Records:
    """Records that were read from one partition, in the order of offsets; each list has one entry for each record."""

    topic: str
    partition: int
    offsets: Sequence[int]
    times_ms: Sequence[int | None]
    """Kafka's timestamps; None if the message format has none.

    A time later than LAST_TIME_MS gives no `source_time`.
    """
    values: Sequence[bytes | None]
    messages: Sequence[Message]
    """Used for the key and headers of a record that is no event."""


def events_of(records: Records, cluster: str, *, calls_topic: str = "", planned_ms: int = 0) -> pyarrow.RecordBatch:
    """Rows of ARROW_SCHEMA, one for each record: an event, or `problem` and the raw record.

    `planned_ms` is the Unix time at which the batch was planned. A batch of an earlier release has none (0): then this
    machine's clock decides.
    """
    values = records.values
    if records.topic == calls_topic:
        values = [event_of_call(value) or value for value in values]
    read = [_members(value) for value in values]
    problems: list[str | None] = [each if isinstance(each, str) else None for each in read]
    found = [{} if isinstance(each, str) else each for each in read]
    told = {name: _texts([each.get(theirs) for each in found], problems) for name, (theirs, _) in TEXTS.items()}
    ids = _texts([each.get("id") for each in found], problems)
    times = pyarrow.array([_number(each.get("timestamp")) for each in found], pyarrow.int64())
    _judge(problems, ids, told, times, records.times_ms, planned_ms or int(time.time() * 1000))
    is_well = pyarrow.array([problem is None for problem in problems])
    time_of_event = _where(is_well, times.cast(pyarrow.timestamp("ms", tz="UTC"), safe=False)).cast(TIME)
    count = len(values)
    columns: dict[str, pyarrow.Array] = {
        "time": time_of_event,
        "event_id": compute.ascii_lower(ids),
        "cluster_name": pyarrow.repeat(cluster, count),
        **{name: _shortened(told[name], length) for name, (_, length) in TEXTS.items()},
        "partition": _place(found, "partition", 2**31 - 1).cast(pyarrow.int32()),
        "offset": _place(found, "offset", LONGEST_INT),
        "source_topic": pyarrow.repeat(records.topic, count),
        "source_partition": pyarrow.repeat(pyarrow.scalar(records.partition, pyarrow.int32()), count),
        "source_offset": pyarrow.array(records.offsets, pyarrow.int64()),
        "source_time": _times_of_kafka(records.times_ms),
        "day": time_of_event.cast(pyarrow.timestamp("us")).cast(pyarrow.date32()),
        "problem": pyarrow.array(problems, pyarrow.string()),
    }
    columns["service_id"] = columns["service_id"].fill_null("")
    columns |= _as_they_came(records, problems)
    return pyarrow.RecordBatch.from_arrays([columns[name] for name in ARROW_SCHEMA.names], schema=ARROW_SCHEMA)


def _members(value: bytes | None) -> dict[str, Any] | str:
    """The members of the JSON object; a text with the reason if the value is no JSON object."""
    if value is None:
        return "it has no value"
    try:
        read = orjson.loads(value)
    except orjson.JSONDecodeError:
        try:
            value.decode()
        except UnicodeDecodeError:
            return "it is no UTF-8"
        return NO_OBJECT
    return read if isinstance(read, dict) else NO_OBJECT


def _judge(
    problems: list[str | None],
    ids: pyarrow.Array,
    told: dict[str, pyarrow.Array],
    times: pyarrow.Array,
    kafkas_ms: Sequence[int | None],
    now: int,
) -> None:
    """Sets the first reason for each record that is no event."""
    ahead = int(AHEAD.total_seconds() * 1000)
    last = pyarrow.array([(now if each is None or each > now else each) + ahead for each in kafkas_ms], pyarrow.int64())
    rules = (
        (compute.match_substring_regex(ids, UUID), "id is no UUID"),
        (compute.greater(compute.binary_length(told["audit_type"]), 0), "auditType is missing"),
        (compute.greater(compute.binary_length(told["audit_status"]), 0), "auditStatus is missing"),
        (compute.greater(times, 0), "timestamp is no time in milliseconds"),
        (compute.less_equal(times, last), "timestamp is more than a day ahead of the clocks here"),
    )
    for is_so, reason in rules:
        if compute.all(is_so.fill_null(fill_value=False)).as_py():
            continue
        for number, so in enumerate(is_so.to_pylist()):
            if not so and problems[number] is None:
                problems[number] = reason


def _texts(values: list[Any], problems: list[str | None]) -> pyarrow.Array:
    """Members as texts; another type is shown as JSON, and if that fails, the record gets a problem."""
    try:
        return pyarrow.array(values, pyarrow.string())
    except (pyarrow.ArrowTypeError, pyarrow.ArrowInvalid):
        return pyarrow.array([_shown(each, number, problems) for number, each in enumerate(values)], pyarrow.string())


def _shown(value: object, number: int, problems: list[str | None]) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # orjson writes at most 254 levels, and reads four times as many
        problems[number] = problems[number] or TOO_DEEP
        return None


def _times_of_kafka(times_ms: Sequence[int | None]) -> pyarrow.Array:
    known = [None if each is None or each > LAST_TIME_MS else each for each in times_ms]
    return pyarrow.array(known, pyarrow.timestamp("ms", tz="UTC")).cast(TIME)


def _number(value: object) -> int | None:
    """A whole number of 64 bits, given as a number or as text."""
    if isinstance(value, str):
        value = int(value) if _WHOLE.fullmatch(value) else None
    is_number = isinstance(value, int) and not isinstance(value, bool) and -LONGEST_INT <= value <= LONGEST_INT
    return value if is_number and isinstance(value, int) else None


def _place(found: list[dict[str, Any]], name: str, most: int) -> pyarrow.Array:
    numbers = pyarrow.array([_number(each.get(name)) for each in found], pyarrow.int64())
    is_place = compute.and_(compute.greater_equal(numbers, 0), compute.less_equal(numbers, most))
    return _where(is_place, numbers)


def _where(condition: pyarrow.Array, values: pyarrow.Array) -> pyarrow.Array:
    return compute.if_else(condition, values, pyarrow.scalar(None, values.type))


def _shortened(texts: pyarrow.Array, length: int) -> pyarrow.Array:
    longest = compute.max(compute.binary_length(texts)).as_py() or 0
    return compute.utf8_slice_codeunits(texts, 0, length) if longest > length else texts


def _as_they_came(records: Records, problems: list[str | None]) -> dict[str, pyarrow.Array]:
    """The raw record, for each record that is no event."""
    types = (pyarrow.binary(), pyarrow.binary(), HEADERS)
    if not any(problems):
        return {name: pyarrow.nulls(len(problems), kind) for name, kind in zip(RAW, types, strict=True)}
    refused = zip(problems, records.messages, strict=True)
    came = [(each.key(), each.value(), _headers(each)) if problem else (None, None, None) for problem, each in refused]
    return {
        name: pyarrow.array([each[at] for each in came], kind)
        for at, (name, kind) in enumerate(zip(RAW, types, strict=True))
    }


def _headers(message: Message) -> list[dict[str, object]]:
    # a consumer always returns a list; the type also covers the forms that a producer accepts
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return [{"key": name, "value": value} for name, value in headers]


def event_of_call(call: bytes | None) -> bytes | None:
    """Converts control's own AuditEvent to the JSON of a sidecar's event; None if the bytes are no AuditEvent."""
    if call is None:
        return None
    try:
        event = admin.AuditEvent.FromString(call)
        timestamp = event.time.ToMilliseconds()
    except (DecodeError, ValueError):  # the time may be outside of any calendar
        return None
    is_well = event.code == "OK"
    shown = {
        "id": event.audit_id,
        "serviceId": CONTROL,
        "auditType": CALL_TYPE,
        "auditStatus": "SUCCESS" if is_well else "FAILURE",
        "correlationId": event.request_id,
        "traceId": event.trace_id,
        "key": event.resource,
        "stacktrace": "" if is_well else f"{event.code} {event.problem}",
        "timestamp": timestamp,
        "actor": event.actor,
        "method": event.method,
    }
    return orjson.dumps({name: value for name, value in shown.items() if value != ""})
