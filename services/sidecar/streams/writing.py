"""The encoders of a topology's records: made once, on the event loop, and used by the topology's threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from services.sidecar.producing.produce_request import Side
from services.sidecar.producing.serializing import Serializer
from services.sidecar.records import Outgoing
from services.sidecar.streams.records import StreamRecord, Target
from services.sidecar.streams.task import Encode

_Encoders = tuple[Callable[[object], bytes], Callable[[object], bytes]]
RECORD_OVERHEAD = 512
"""Room for headers and framing within the largest record."""
EARLIEST_TIME = 1
"""The earliest time, in milliseconds. The client takes 0 for now, so a window of 1970 would become one of today."""


async def encoding(targets: Iterable[Target], serializer: Serializer, *, max_record_bytes: int) -> Encode:
    """The encoder for all targets; asks for their schemas. Fault when a schema cannot be found."""
    encoders: dict[Target, _Encoders] = {}
    for target in targets:
        if target.is_internal:
            encoders[target] = (target.key_format.codec.encode, target.value_format.codec.encode)
            continue
        encoder = await serializer.encoder(
            target.topic,
            Side("key", target.key_format, target.key_schema),
            Side("value", target.value_format, target.value_schema),
        )
        encoders[target] = (encoder.key.encode, encoder.value.encode)

    def encode(target: Target, record: StreamRecord) -> Outgoing:
        encode_key, encode_value = encoders[target]
        key = None if record.key is None else encode_key(record.key)
        value = None if record.value is None else encode_value(record.value)
        if len(key or b"") + len(value or b"") > max_record_bytes - RECORD_OVERHEAD:
            raise ValueError(f"a record for {target.topic} is larger than max_record_bytes {max_record_bytes}")
        return Outgoing(key, value, None, max(record.timestamp, EARLIEST_TIME), list(record.headers))

    return encode
