"""A record names the schema of its key or value in a prefix, or in a header.

- 0x00, id (4 bytes, big endian), payload: the usual form, which services of the mesh write.
- 0x01, GUID (16 bytes), payload: a newer form.
- The header `__value_schema_id`, and the payload alone: a newer form. The header has one of the two prefixes above.

Readers check headers first. With a Protobuf schema, the path of message indexes is before the payload. If the prefix is
in a header, the path is in that header too, after the prefix; this module moves the path in front of the payload.
"""

import struct
from collections.abc import Iterable
from typing import Literal

from mesh.schemas.schema import FormatError

Part = Literal["key", "value"]
HeaderPairs = Iterable[tuple[str, bytes | str | None]]

SCHEMA_HEADERS: dict[Part, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}
ID_LENGTH = 5
GUID_LENGTH = 17


def prefix_of(schema_id: int) -> bytes:
    """The bytes before each value of a schema."""
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


def framed_in_batch(part: Part, content: bytes, headers: Iterable[tuple[bytes, bytes | None]]) -> tuple[bytes, bytes]:
    """As `framed`, with headers as a batch has them."""
    header = SCHEMA_HEADERS[part]
    wanted = header.encode()
    return framed(part, content, [(header, each) for name, each in headers if name == wanted])


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
