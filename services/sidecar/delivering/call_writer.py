"""A call to the backend as HTTP has it: its body and its headers."""

import hashlib
from collections.abc import Sequence
from enum import Enum

from mesh.tracing.context import Trace
from services.sidecar.consuming import record_text
from services.sidecar.consuming.cloud_events import event_in, wrapped
from services.sidecar.consuming.instance_values import HeaderShape
from services.sidecar.delivering.batch import Deliverable
from services.sidecar.delivering.progress import Ask
from services.sidecar.formats import Format
from services.sidecar.records import Consumed

IDEMPOTENCY_KEY = "Idempotency-Key"
ATTEMPT = "Delivery-Attempt"


class Content(Enum):
    """The content of a body."""

    RECORDS = "records"
    """The original's: an array of records, as reads of an instance have it."""
    CLOUD_EVENTS = "cloudevents"
    """A batch of CloudEvents: records that are events go unchanged, any other record goes within an event."""

    @property
    def media_type(self) -> str:
        return "application/json" if self is Content.RECORDS else "application/cloudevents-batch+json"


class CallWriter:
    """Writes calls of one backend."""

    def __init__(self, content: Content, header_shape: HeaderShape, value_format: Format) -> None:
        self._content = content
        self._header_shape = header_shape
        self._value_format = value_format

    def body(self, ask: Ask) -> bytes:
        if self._content is Content.RECORDS:
            return record_text.record_array([record.shown for record in ask.records], self._header_shape)
        return record_text.event_batch([self._event(record) for record in ask.records])

    def headers(self, ask: Ask) -> dict[str, str]:
        """The headers of this call alone."""
        headers = {
            "Content-Type": self._content.media_type,
            IDEMPOTENCY_KEY: idempotency_key(ask),
            ATTEMPT: str(ask.attempt),
        }
        if len(ask.records) == 1:  # a call with several records is of no one trace
            headers |= Trace.of_record(ask.records[0].raw.headers).headers
        return headers

    def _event(self, record: Deliverable) -> Consumed:
        event = event_in(record.raw.headers, record.raw.value)
        if event is None:
            event = wrapped(record.shown, record.raw.key, self._value_format)
        return record.shown._replace(key=None, value=event)


def idempotency_key(ask: Ask) -> str:
    """topic-partition-first-last: the same key for the same records, however often they come.

    Another occasion has another key.

    If the call lacks offsets between first and last (settled, filtered, in another lane, or without a record), the key
    has one more word. This word separates the key from that of a call with all offsets: a backend must not mistake one
    call for the other.
    """
    first, last = ask.records[0].raw, ask.records[-1].raw
    key = f"{first.topic}-{first.partition}-{first.offset}-{last.offset}"
    if ask.occasion:
        key = f"{key}-{ask.occasion}"
    if last.offset - first.offset == len(ask.records) - 1:
        return key
    return f"{key}-{_digest([record.raw.offset for record in ask.records])}"


def _digest(offsets: Sequence[int]) -> str:
    return hashlib.sha256(",".join(map(str, offsets)).encode()).hexdigest()[:12]
