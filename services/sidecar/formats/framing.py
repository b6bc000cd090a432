"""How a record says which schema its key or value has: before it, or in a header.

    0x00, id (4 bytes, big endian), payload        what everybody writes, this sidecar too
    0x01, GUID (16 bytes), payload                 newer
    header `__value_schema_id`, payload alone      newer; the header has one of the two prefixes above

Readers look at headers first. With a Protobuf schema the path of message indexes stands before the payload; where the
prefix is in a header, the path is there too, after it, and is moved to where the codec looks for it.
"""

import struct
import uuid
from collections.abc import Iterable
from typing import Literal

from services.sidecar.formats.codec import FormatError
from services.sidecar.schemas.questions import ByGuid, ById

Part = Literal["key", "value"]
HeaderPairs = Iterable[tuple[str, bytes | str | None]]

SCHEMA_HEADERS: dict[Part, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}
ID_LENGTH = 5
GUID_LENGTH = 17


def prefix_of(schema_id: int) -> bytes:
    """What stands before each value of a schema."""
    return struct.pack(">bI", 0, schema_id)


def framed(part: Part, content: bytes, headers: HeaderPairs | None) -> tuple[bytes, bytes]:
    """Prefix and payload of a record's key or value. FormatError when it has no prefix."""
    if headers:
        for name, value in headers:
            if name == SCHEMA_HEADERS[part] and isinstance(value, bytes):
                length = _prefix_length(value, f"header {name}")
                return value[:length], value[length:] + content
    length = _prefix_length(content, "")
    return content[:length], content[length:]


def question_of(prefix: bytes) -> ById | ByGuid:
    """Which schema a prefix means."""
    if len(prefix) == ID_LENGTH:
        return ById(struct.unpack(">I", prefix[1:])[0])
    return ByGuid(str(uuid.UUID(bytes=prefix[1:])))


def _prefix_length(content: bytes, where: str) -> int:
    match content[:1]:
        case b"\x00" if len(content) >= ID_LENGTH:
            return ID_LENGTH
        case b"\x01" if len(content) >= GUID_LENGTH:
            return GUID_LENGTH
    begin = content[:GUID_LENGTH].hex(" ") or "nothing"
    raise FormatError(
        f"not written with a schema registry: {where or 'it'} begins with {begin}, not with a schema's id"
    )
