"""A dead letter as it is written: the original's bytes, its headers, and where it came from; and the way back.

Ids and the stack trace have the names that the original sidecar gives them; `dlq.*` is ours. A dead letter that is too
large for Kafka is written in a smaller form: the next of `Form`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from services.sidecar.delivering.batch import ReplyRecord
from services.sidecar.records import CORRELATION_HEADER, TRACEABILITY_HEADER, Headers, Outgoing, RawRecord, Verdict

STACK_TRACE_HEADER = "StackTrace"
ORIGIN_HEADERS = (
    "dlq.topic", "dlq.partition", "dlq.offset", "dlq.timestamp", "dlq.group", "dlq.reason", "dlq.attempts",
    "dlq.first.failure", "dlq.value.bytes", "dlq.key.bytes",
)  # fmt: skip
"""The last two stand for a value and a key that are left off: their sizes."""
MAX_STACK_TRACE_BYTES = 16 * 1024
SHORT_STACK_TRACE_BYTES = 256
MOST_FACT_BYTES = 1024
"""The most bytes of a header that every form has. Other writers' headers of our names may be longer."""


class Form(IntEnum):
    """The parts of a record that its dead letter holds. Each form is smaller than the form before."""

    WHOLE = 0
    SHORT_TRACE = 1
    WITHOUT_VALUE = 2
    """The value is at `dlq.topic`, `dlq.partition`, `dlq.offset` for as long as that topic keeps it."""
    FACTS = 3
    """Neither key nor headers of its own."""


_ADDED = frozenset({*ORIGIN_HEADERS, STACK_TRACE_HEADER})


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin that the headers of a dead letter name.

    Dead letters of other writers may name none: None, or empty.
    """

    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    group: str = ""
    """The group of the consumer that gave the record up."""
    reason: str = ""
    attempts: int | None = None
    first_failure: int | None = None
    """In milliseconds since the epoch; None if it never reached the backend."""
    stacktrace: str = ""
    value_bytes: int | None = None
    """Size of a value that was left off, as the dead letter would have been too large for Kafka."""

    @classmethod
    def of(cls, headers: Iterable[tuple[str, bytes | None]]) -> "Origin":
        said = {name: (value or b"").decode(errors="replace") for name, value in headers if name in _ADDED}
        return cls(
            topic=said.get("dlq.topic", ""),
            partition=_number(said.get("dlq.partition")),
            offset=_number(said.get("dlq.offset")),
            timestamp=_number(said.get("dlq.timestamp")),
            group=said.get("dlq.group", ""),
            reason=said.get("dlq.reason", ""),
            attempts=_number(said.get("dlq.attempts")),
            first_failure=_number(said.get("dlq.first.failure")),
            stacktrace=said.get(STACK_TRACE_HEADER, ""),
            value_bytes=_number(said.get("dlq.value.bytes")),
        )


def dead_letter_topic(topic: str, extension: str) -> str:
    """A dead letter that fails again stays where it is."""
    return topic if topic.endswith(extension) else topic + extension


def dead_letter(verdict: Verdict, group: str, extension: str, form: Form = Form.WHOLE) -> ReplyRecord:
    """The dead letter of a record, partitioned by its key, like all of that topic.

    Its time is that of the failure, so Kafka keeps the dead letter as long as any other. A dead letter that fails again
    keeps its first origin.
    """
    record = verdict.record
    claims = ((name, value) for name, value in record.headers if name in ORIGIN_HEADERS)
    origin = {name: value for name, value in claims if value and len(value) <= MOST_FACT_BYTES}
    first = {
        "dlq.topic": record.topic.encode(),
        "dlq.partition": b"%d" % record.partition,
        "dlq.offset": b"%d" % record.offset,
        "dlq.timestamp": b"%d" % record.timestamp,
    }
    if verdict.first_failure:
        first["dlq.first.failure"] = b"%d" % verdict.first_failure
    key, value, own, trace_bytes = record.key, record.value, _own(record), MAX_STACK_TRACE_BYTES
    if form is not Form.WHOLE:
        trace_bytes = SHORT_STACK_TRACE_BYTES
    if form >= Form.WITHOUT_VALUE and value is not None:
        first["dlq.value.bytes"], value = b"%d" % len(value), None
    if form is Form.FACTS:
        own = []
        if key is not None:
            first["dlq.key.bytes"], key = b"%d" % len(key), None
    facts = {
        **origin,
        **{name: origin.get(name, value) for name, value in first.items()},
        "dlq.group": group.encode(),
        "dlq.reason": (verdict.reason.value if verdict.reason else "").encode(),
        "dlq.attempts": b"%d" % verdict.attempts,
    }
    added: Headers = [one for one in _missing_ids(verdict) if form is not Form.FACTS or len(one[1]) <= MOST_FACT_BYTES]
    if verdict.stacktrace:
        added.append((STACK_TRACE_HEADER, verdict.stacktrace.encode(errors="replace")[:trace_bytes]))
    return ReplyRecord(
        dead_letter_topic(record.topic, extension),
        Outgoing(key, value, None, 0, [*added, *own, *facts.items()]),
        smaller=None if form is Form.FACTS else partial(dead_letter, verdict, group, extension, Form(form + 1)),
    )


def has_lost_its_value(record: RawRecord) -> bool:
    """Whether the value of the dead letter was too large for Kafka: then the original record is not available."""
    return any(name == "dlq.value.bytes" for name, _ in record.headers)


def source_topic(record: RawRecord, extension: str) -> str:
    """The source topic of a dead letter, by its headers, else by its topic's name."""
    return Origin.of(record.headers).topic or record.topic.removesuffix(extension)


def original(record: RawRecord, topic: str) -> ReplyRecord:
    """The original record for this topic: the dead letter's bytes, its time, and its headers without the added ones."""
    timestamp = Origin.of(record.headers).timestamp
    if timestamp is None:
        timestamp = record.timestamp
    return ReplyRecord(topic, Outgoing(record.key, record.value, None, max(timestamp, 0), _own(record)))


def _own(record: RawRecord) -> Headers:
    return [header for header in record.headers if header[0] not in _ADDED]


def _missing_ids(verdict: Verdict) -> list[tuple[str, bytes]]:
    """Ids that the backend said, and the record does not have: its own are kept as they are."""
    has = {name.lower() for name, _ in verdict.record.headers}
    said = ((CORRELATION_HEADER, verdict.correlation_id), (TRACEABILITY_HEADER, verdict.traceability_id))
    return [(name, value.encode(errors="replace")) for name, value in said if value and name.lower() not in has]


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
