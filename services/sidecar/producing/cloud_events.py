"""CloudEvents as Kafka records, by the Kafka protocol binding.

Binary mode: attributes are headers `ce_<name>`, the data is the value, its type the header `content-type`; an event
without data is a record without value, a tombstone. Structured mode: the whole event is the value, as JSON. In both the
attribute `partitionkey` is the key, and stays an attribute.
"""

from enum import Enum

from mesh.tracing.context import TRACEPARENT, TRACESTATE, Trace
from services.sidecar.formats import cloud_event, json_text
from services.sidecar.formats.cloud_event import CloudEvent
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.producing.produce_request import RecordRequest
from services.sidecar.records import Outgoing

PREFIX = "ce_"
CONTENT_TYPE = "content-type"


class ContentMode(Enum):
    """The place of an event in a record."""

    BINARY = "binary"
    STRUCTURED = "structured"


def outgoing(events: list[CloudEvent], mode: ContentMode, headers: HeaderWriter) -> list[Outgoing]:
    """One record for each event, with the headers that the request gives to its records (`headers`)."""
    return [_record(event, mode, headers) for event in events]


def _record(event: CloudEvent, mode: ContentMode, headers: HeaderWriter) -> Outgoing:
    own: list[tuple[str, bytes | None]] = []
    if mode is ContentMode.BINARY:
        value = event.data
        for name, attribute in event.attributes.items():
            header = CONTENT_TYPE if name == "datacontenttype" else PREFIX + name
            own.append((header, cloud_event.canonical(attribute).encode()))
    else:
        value = json_text.dumps(cloud_event.to_json(event))
        own.append((CONTENT_TYPE, f"{cloud_event.JSON}; charset=UTF-8".encode()))
    trace = Trace.of([event.text(TRACEPARENT) or ""], [event.text(TRACESTATE) or ""])
    own += [(name, text.encode()) for name, text in trace.headers.items()]
    key = event.text("partitionkey")
    return Outgoing(
        key=None if key is None else key.encode(),
        value=value,
        partition=None,
        timestamp=0,
        headers=headers.of(RecordRequest(headers=own)),
    )
