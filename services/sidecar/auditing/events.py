"""Audit records: what became of one record, in the original's words. Never the payload.

The thread that does the work makes the audit records, so a record is cheap: a tuple whose texts may still be bytes.
`text.py` gives the records their form.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

import orjson

from services.sidecar.formats import json_text
from services.sidecar.records import (
    CORRELATION_HEADER,
    Commit,
    Consumed,
    Delivered,
    Failed,
    Headers,
    Outcome,
    Outgoing,
    Partition,
    Verdict,
    WriteOutcome,
)

MAX_KEY_CHARACTERS = 4_096
MAX_ID_CHARACTERS = 256
MAX_STACK_TRACE_CHARACTERS = 16_384
"""Bounds of a record's key, ids and failure reason: audit must stay smaller than the records themselves."""

_TRACE_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class AuditType(Enum):
    """The part of the sidecar that reports what became of the record."""

    PRODUCER = "PRODUCER"
    REACTIVE_CONSUMER = "REACTIVE_CONSUMER"
    ACTIVE_CONSUMER = "ACTIVE_CONSUMER"
    STREAMING_CONSUMER = "STREAMING_CONSUMER"
    STREAMING_PRODUCER = "STREAMING_PRODUCER"


class AuditStatus(Enum):
    """How it went."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


Text = bytes | str | None


class RecordIds(NamedTuple):
    """The ids in a record's headers that tie the record to others."""

    correlation: Text = None
    traceability: Text = None
    trace: Text = None
    """W3C trace id."""


NO_IDS = RecordIds()


class AuditRecord(NamedTuple):
    """The audit of one record. There is one for each record, so it is a tuple."""

    id: str
    type: AuditType
    topic: str
    partition: int | None
    offset: int | None
    ids: RecordIds
    key: Text
    status: AuditStatus
    stacktrace: str | None
    """Why it failed."""
    timestamp: int
    """When this was said, in milliseconds since the epoch."""


def audit_record(
    type_: AuditType,
    topic: str,
    partition: int | None,
    offset: int | None,
    *,
    key: object = None,
    ids: RecordIds = NO_IDS,
    failure: str | None = None,
) -> AuditRecord:
    """A single audit record. `failure`: the reason of the failure; None for a success."""
    status = AuditStatus.SUCCESS if failure is None else AuditStatus.FAILURE
    why = None if failure is None else failure[:MAX_STACK_TRACE_CHARACTERS]
    return AuditRecord(next(audit_ids()), type_, topic, partition, offset, ids, _bounded(key), status, why, _now())


def produced(
    topic: str, records: Sequence[Outgoing], outcomes: Sequence[WriteOutcome], type_: AuditType = AuditType.PRODUCER
) -> list[AuditRecord]:
    """The audit records of records that were written, or not."""
    now, success, failure = _now(), AuditStatus.SUCCESS, AuditStatus.FAILURE
    made: list[AuditRecord] = []
    last_headers: object = None
    ids = NO_IDS
    place: int | None
    offset: int | None
    why: str | None
    told = zip(records, outcomes, strict=True)
    for id_, ((key, _, partition, _, headers), outcome) in zip(audit_ids(), told, strict=False):
        if headers is not last_headers:  # records of one request share theirs
            last_headers, ids = headers, ids_in(headers)
        if isinstance(outcome, Delivered):
            place, offset, status, why = outcome.partition, outcome.offset, success, None
        else:
            place, offset, status, why = partition, None, failure, said(outcome)
        if key is not None and len(key) > MAX_KEY_CHARACTERS:
            key = key[:MAX_KEY_CHARACTERS]  # noqa: PLW2901  # a call for each record would take its time
        made.append(_made((id_, type_, topic, place, offset, ids, key, status, why, now)))
    return made


def settled(verdicts: Iterable[Verdict], type_: AuditType = AuditType.REACTIVE_CONSUMER) -> list[AuditRecord]:
    """The audit records of records that the backend, or its stand-in, has settled."""
    now, new_ids = _now(), audit_ids()
    made = []
    for verdict in verdicts:
        record, outcome = verdict.record, verdict.outcome
        found = ids_in(record.headers)
        ids = RecordIds(
            found.correlation or verdict.correlation_id[:MAX_ID_CHARACTERS] or None,
            found.traceability or verdict.traceability_id[:MAX_ID_CHARACTERS] or None,
            found.trace,
        )
        if outcome is Outcome.SUCCESS:
            status, why = AuditStatus.SUCCESS, None
        else:
            status, why = AuditStatus.FAILURE, _reason(verdict)
        made.append(
            AuditRecord(
                next(new_ids), type_, record.topic, record.partition, record.offset, ids, _bounded(record.key),
                status, why, now,
            )
        )  # fmt: skip
    return made


def given(records: Iterable[Consumed], type_: AuditType = AuditType.ACTIVE_CONSUMER) -> list[AuditRecord]:
    """The audit records of records that a backend got when it asked for records."""
    now, new_ids, success = _now(), audit_ids(), AuditStatus.SUCCESS
    return [
        AuditRecord(
            next(new_ids), type_, one.topic, one.partition, one.offset, ids_in(one.headers), _bounded(one.key),
            success, None, now,
        )
        for one in records
    ]  # fmt: skip


def committed(commits: Iterable[Commit], type_: AuditType = AuditType.ACTIVE_CONSUMER) -> list[AuditRecord]:
    """One audit record for each partition, about its last committed record: it has neither key nor ids."""
    return [
        audit_record(type_, one.partition.topic, one.partition.partition, max(one.offset - 1, 0)) for one in commits
    ]


def not_committed(
    places: Iterable[tuple[Partition, int | None]], why: str, type_: AuditType = AuditType.ACTIVE_CONSUMER
) -> list[AuditRecord]:
    """One audit record for each partition, about the last record of the refused commit.

    The offset may be unknown (None).
    """
    return [audit_record(type_, place.topic, place.partition, offset, failure=why) for place, offset in places]


def ids_in(headers: Headers | list[tuple[str, bytes | None]]) -> RecordIds:
    """The first header of each name, in any case."""
    correlation: Text = None
    traceability: Text = None
    trace: Text = None
    for name, value in headers:
        if name == CORRELATION_HEADER:  # as nearly all write it
            correlation = correlation or value
            continue
        match name.lower():
            case "x-correlation-id":
                correlation = correlation or value
            case "x-traceability-id":
                traceability = traceability or value
            case "traceparent" if trace is None and value:
                trace = trace_id(value)
    if correlation and len(correlation) > MAX_ID_CHARACTERS:
        correlation = correlation[:MAX_ID_CHARACTERS]
    if traceability and len(traceability) > MAX_ID_CHARACTERS:
        traceability = traceability[:MAX_ID_CHARACTERS]
    return _ids((correlation, traceability, trace))


def trace_id(traceparent: bytes | str) -> str | None:
    """The trace id of a valid W3C traceparent; None for any other text."""
    text = traceparent.encode(errors="replace") if isinstance(traceparent, str) else traceparent
    found = _TRACE_PARENT.match(text)
    return found[1].decode("ascii") if found else None


def audit_ids() -> Iterator[str]:
    """As many different UUIDs (version 4) as are asked for, most of their bits random and shared."""
    while True:
        random = os.urandom(16).hex()
        prefix = f"{random[:8]}-{random[8:12]}-4{random[12:15]}-{'89ab'[int(random[15], 16) & 3]}{random[16:19]}-"
        for number in _SUFFIXES:
            yield prefix + random[20:28] + number


def said(failure: Failed) -> str:
    """Why a record was not written."""
    return f"{failure.error.value} {failure.text}"[:MAX_STACK_TRACE_CHARACTERS]


def _reason(verdict: Verdict) -> str:
    if verdict.stacktrace:
        return verdict.stacktrace[:MAX_STACK_TRACE_CHARACTERS]
    if verdict.outcome is Outcome.DROP:
        return "dropped: the backend does not want it"
    return f"dead letter: {verdict.reason.value if verdict.reason else 'no reason given'}"


def _bounded(key: object) -> Text:
    """A key within its bound. A key that its format made neither bytes nor text is written as JSON."""
    if key is None or isinstance(key, bytes | str):
        return key if key is None else key[:MAX_KEY_CHARACTERS]
    text = orjson.dumps(key) if isinstance(key, orjson.Fragment) else json_text.dumps(key)
    return text[:MAX_KEY_CHARACTERS]


def _now() -> int:
    return time.time_ns() // 1_000_000


_made: Callable[[tuple[object, ...]], AuditRecord] = partial(tuple.__new__, AuditRecord)
_ids: Callable[[tuple[Text, ...]], RecordIds] = partial(tuple.__new__, RecordIds)
"""In half the time of the classes themselves."""
_SUFFIXES = [f"{number:04x}" for number in range(500)]
