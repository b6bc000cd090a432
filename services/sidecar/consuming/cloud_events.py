"""Kafka records as CloudEvents.

A record that is an event, in binary or in structured mode, is shown as that event, with nothing added. Any other record
is wrapped, so that a reader gets events only:

- `specversion` is 1.0, `type` is kafka.mesh.record, `source` is /topics/<topic>.
- `id` is partition:<p>/offset:<o>, `subject` is partition:<p>#<o>, `time` is the record's.
- `partitionkey` is the key, if the key is text.
- `kafkaheader<name>` is a header that is text, with its name in lower case, letters and digits only.
- The data is the value in the instance's format.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import orjson
from confluent_kafka import Message

from services.sidecar.consuming.decoding import decoded
from services.sidecar.consuming.instance_values import InstanceOptions
from services.sidecar.consuming.message_headers import headers_of
from services.sidecar.faults import Fault
from services.sidecar.formats import Format, cloud_event, json_text
from services.sidecar.formats.cloud_event import Attribute, CloudEvent
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.records import Consumed

WRAPPED_TYPE = "kafka.mesh.record"

KafkaHeaders = Sequence[tuple[str, bytes | None]]
_PREFIX = "ce_"
_STRUCTURED = "application/cloudevents"
_LAST_TIMESTAMP = 253_402_300_799_999


def events_in(
    messages: list[Message], options: InstanceOptions, shown_as: Format | None, reader: RecordReader
) -> list[Consumed]:
    """The records, with events as their values and without keys. As `decoded`, up to the first that does not fit."""
    records: list[Consumed] = []
    for message in messages:
        key, value, headers = message.key(), message.value(), headers_of(message)
        event = event_in(headers, value)
        try:
            format_ = Format.BINARY if event is not None else shown_as
            (record,) = decoded([message], options, format_, reader)
        except Fault:
            if records:
                break
            raise
        if event is None:
            event = wrapped(record, key, shown_as or options.value_format)
        records.append(record._replace(key=None, value=event))
    return records


def event_in(headers: KafkaHeaders, value: bytes | None) -> object | None:
    """The JSON form of the event that a record is; None when it is none, or not a valid one."""
    texts = {name.lower(): _text(given) for name, given in headers}
    content_type = texts.get("content-type")
    if content_type is not None and content_type.lower().startswith(_STRUCTURED):
        return _structured(content_type, value)
    if "ce_specversion" not in texts:
        return None
    attributes: dict[str, Attribute] = {}
    for name, text in texts.items():
        if name.startswith(_PREFIX):
            if text is None:
                return None
            attributes[name.removeprefix(_PREFIX)] = text
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    if cloud_event.violations(attributes, lambda name: name):
        return None
    return cloud_event.to_json(CloudEvent(attributes, value))


def wrapped(record: Consumed, key: bytes | None, shown_as: Format) -> object:
    """The JSON form of an event around a record that is none; its value is as this format shows it."""
    event: dict[str, object] = {
        "specversion": cloud_event.SPECVERSION,
        "type": WRAPPED_TYPE,
        "source": f"/topics/{record.topic}",
        "id": f"partition:{record.partition}/offset:{record.offset}",
        "subject": f"partition:{record.partition}#{record.offset}",
    }
    if 0 <= record.timestamp <= _LAST_TIMESTAMP:  # writers may give any; events have no words for times after 9999
        event["time"] = _time(record.timestamp)
    named = [(_in_names(name), content) for name, content in record.headers]
    further = [("partitionkey", key), *((f"kafkaheader{name}", content) for name, content in named if name)]
    for name, content in further:
        text = _text(content)
        if text is not None and not cloud_event.complaint(name, text):
            event[name] = text
    if record.value is None:
        return event
    match Format.parse(record.value_format) if record.value_format else shown_as:
        case Format.BINARY:
            return {**event, "datacontenttype": "application/octet-stream", "data_base64": record.value}
        case Format.STRING:
            return {**event, "datacontenttype": "text/plain", "data": record.value}
        case _:
            return {**event, "datacontenttype": "application/json", "data": record.value}


def _structured(content_type: str, value: bytes | None) -> object | None:
    """The value as it stands, when it is a valid event in JSON."""
    if value is None or content_type.partition(";")[0].strip().lower() != cloud_event.JSON:
        return None
    try:
        event = cloud_event.from_json(json_text.loads(value))
    except json_text.JsonError:
        return None
    return orjson.Fragment(value) if isinstance(event, CloudEvent) else None


def _in_names(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _time(timestamp: int) -> str:
    """Milliseconds since the epoch, as events write times."""
    return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
