"""Messages of Kafka as records of the backend: keys and values in the instance's formats."""

from typing import Any

from confluent_kafka import Message

from services.sidecar.consuming.records import Consumed, InstanceOptions
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, FormatError


def decoded(messages: list[Message], options: InstanceOptions, shown_as: Format | None) -> list[Consumed]:
    """The records, up to the first that does not fit its format. Fault, naming it, when that is the first of all."""
    key_format = Format.BINARY if shown_as is Format.BINARY else options.key_format
    value_format = shown_as or options.value_format
    records: list[Consumed] = []
    for message in messages:
        key, value = message.key(), message.value()
        try:
            part = "key"
            shown_key = None if key is None else key_format.codec.decode(key)
            part = "value"
            shown_value = None if value is None else value_format.codec.decode(value)
        except FormatError as error:
            if not records:
                raise _misfit(message, f"its {part} is {error}", shown_as) from None
            break
        headers: Any = message.headers()
        records.append(
            Consumed(
                message.topic() or "",
                message.partition() or 0,
                message.offset() or 0,
                message.timestamp()[1],
                shown_key,
                shown_value,
                headers or [],
                len(key or b"") + len(value or b""),
            )
        )
    return records


def _misfit(message: Message, reason: str, shown_as: Format | None) -> Fault:
    kind = FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION
    if shown_as is not None and shown_as is not Format.BINARY:
        kind = FaultKind.CONSUMER_FORMAT_MISMATCH
    return Fault(
        kind,
        f"Record {message.topic()}-{message.partition()} offset {message.offset()} does not fit its format: {reason}; "
        "read it with ?format=binary to get past it",
    )
