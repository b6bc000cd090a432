"""Messages of Kafka as records of the backend: keys and values in the instance's formats."""

from confluent_kafka import Message

from mesh.schemas.schema import RegistryUnavailableError
from services.sidecar.consuming.instance_values import InstanceOptions
from services.sidecar.consuming.message_headers import headers_of
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, FormatError
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.records import Consumed


def decoded(
    messages: list[Message], options: InstanceOptions, shown_as: Format | None, reader: RecordReader
) -> list[Consumed]:
    """The records, up to the first that cannot be shown. Fault, naming it, when that is the first of all."""
    shows_keys = shown_as is Format.BINARY or shown_as is Format.AUTO
    key_format = shown_as if shown_as is not None and shows_keys else options.key_format
    value_format = shown_as or options.value_format
    records: list[Consumed] = []
    for message in messages:
        key, value = message.key(), message.value()
        headers = headers_of(message)
        try:
            part = "key"
            shown_key, key_label = reader.shown(key_format, "key", key, headers)
            part = "value"
            shown_value, value_label = reader.shown(value_format, "value", value, headers)
        except FormatError as error:
            if not records:
                raise _misfit(message, f"its {part} is {error}", shown_as) from None
            break
        except RegistryUnavailableError as error:
            if not records:
                raise _unreadable_now(message, part, error) from None
            break
        records.append(
            Consumed(
                message.topic() or "",
                message.partition() or 0,
                message.offset() or 0,
                message.timestamp()[1],
                shown_key,
                shown_value,
                headers,
                len(key or b"") + len(value or b""),
                key_label,
                value_label,
            )
        )
    return records


def _unreadable_now(message: Message, part: str, error: RegistryUnavailableError) -> Fault:
    """The fault while the registry is away. The record may be valid, so it stays the next record."""
    return Fault(
        FaultKind.SCHEMA_REGISTRY_UNAVAILABLE,
        f"Record {message.topic()}-{message.partition()} offset {message.offset()} cannot be read now, for the "
        f"schema of its {part}: {error}; try again",
    )


def _misfit(message: Message, reason: str, shown_as: Format | None) -> Fault:
    kind = FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION
    if shown_as is not None and shown_as is not Format.BINARY:
        kind = FaultKind.CONSUMER_FORMAT_MISMATCH
    return Fault(
        kind,
        f"Record {message.topic()}-{message.partition()} offset {message.offset()} does not fit its format: {reason}; "
        "read it with ?format=binary to get past it",
    )
