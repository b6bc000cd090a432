"""Frames and headers: the bytes around a message.

On the wire a frame is its size (int32), then a header, then a body. The gateway reads into a buffer that all
connections share, so nothing here copies or keeps bytes. `FrameSplitter` returns the places of the complete frames. The
connection copies the unfinished frame aside before another connection reads into the buffer.
"""

from dataclasses import dataclass
from struct import Struct as Packing
from typing import NamedTuple

from services.gateway.wire.apis import api_name, request_header_version, response_header_version
from services.gateway.wire.codec import encode_into
from services.gateway.wire.primitives import INT32, Buffer, WireError, write_nullable_string
from services.gateway.wire.scanner.walks.headers import (
    RequestHeader,
    ResponseHeader,
    parse_request_header,
    parse_response_header,
)
from services.gateway.wire.schema import Kind, Struct, spec_of

__all__ = [
    "CORRELATION_OFFSET",
    "DEFAULT_MAX_FRAME_BYTES",
    "REQUEST_ID_AT",
    "SIZE_BYTES",
    "FrameSplitter",
    "FrameTooLargeError",
    "RequestHeader",
    "ResponseHeader",
    "Split",
    "describe",
    "encode_request",
    "encode_response",
    "parse_request_header",
    "parse_response_header",
    "request_prefix",
    "response_prefix",
]

SIZE_BYTES = 4
"""The length prefix of a frame."""
CORRELATION_OFFSET = 4
"""The offset of the correlation id in a request, counted from the api key; in a response it comes first."""
REQUEST_ID_AT = SIZE_BYTES + CORRELATION_OFFSET
"""The same offset, counted from the frame's length prefix."""
DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024
"""`socket.request.max.bytes` of a broker by default."""

_FRAME_AND_REQUEST_START = Packing(">ihhi")
REQUEST_START_BYTES = _FRAME_AND_REQUEST_START.size - SIZE_BYTES
"""Bytes of the beginning of every request: API key, version, correlation id."""


Pieces = tuple[bytearray | memoryview, *tuple[Buffer, ...]]
"""A whole frame, whose first piece has the place of its correlation id."""


class FrameTooLargeError(WireError):
    """A frame that is longer than its connection may send."""


class Split(NamedTuple):
    """The frames in a stretch of the stream."""

    frames: list[tuple[int, int]]
    """(start, end) of each complete frame, its size prefix not counted: that stands at `start - SIZE_BYTES`."""
    rest: int
    """The offset of the unfinished frame, with its prefix; the end of the stretch if there is none."""
    missing: int
    """Bytes that the unfinished frame still waits for; 0 when there is none, or when its size is not yet known."""


LEAST_FRAME_BYTES = 4
"""A correlation id: less is in no request and no response."""

TLS_HELLO = 0x1603
"""The first bytes of TLS: a handshake of version 3."""


@dataclass(frozen=True, slots=True)
class FrameSplitter:
    """Finds frames in a stream with length prefixes."""

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    min_frame_bytes: int = LEAST_FRAME_BYTES

    def split(self, buffer: Buffer, start: int, end: int) -> Split:
        """The frames in `buffer[start:end]`, where `start` is the beginning of a frame.

        Raises `WireError` at once for a size that no frame may have, not only when its bytes have arrived. Frames
        before it in the same stretch are not reported: a peer that lies about lengths is not worth an answer.
        """
        frames: list[tuple[int, int]] = []
        position = start
        unpack = INT32.unpack_from
        while end - position >= SIZE_BYTES:
            (size,) = unpack(buffer, position)
            if not self.min_frame_bytes <= size <= self.max_frame_bytes:
                self._refuse(size, position)
            stop = position + SIZE_BYTES + size
            if stop > end:
                return Split(frames, position, stop - end)
            frames.append((position + SIZE_BYTES, stop))
            position = stop
        return Split(frames, position, 0)

    def _refuse(self, size: int, position: int) -> None:
        if size > self.max_frame_bytes:
            hint = "; these are the first bytes of TLS" if size >> 16 == TLS_HELLO else ""
            raise FrameTooLargeError("frame size", position, f"{size} bytes (at most {self.max_frame_bytes}){hint}")
        raise WireError("frame size", position, f"{size} bytes (at least {self.min_frame_bytes})")


def request_prefix(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_size: int
) -> bytearray:
    """Size prefix and header of a request whose body of `body_size` bytes follows from elsewhere."""
    out = bytearray(_FRAME_AND_REQUEST_START.pack(0, api_key, api_version, correlation_id))
    version = request_header_version(api_key, api_version)
    if version > 0:
        write_nullable_string(out, client_id, "request header.client_id")
    if version == 2:
        out.append(0)
    INT32.pack_into(out, 0, len(out) - SIZE_BYTES + body_size)
    return out


def request_start(size: int, api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Size prefix, API and correlation id of a request of `size` bytes, of which `REQUEST_START_BYTES` are these."""
    return _FRAME_AND_REQUEST_START.pack(size, api_key, api_version, correlation_id)


def response_prefix(api_key: int, api_version: int, correlation_id: int, body_size: int) -> bytearray:
    """Size prefix and header of a response whose body of `body_size` bytes follows from elsewhere."""
    tags = b"\x00" if response_header_version(api_key, api_version) else b""
    out = bytearray(INT32.pack(4 + len(tags) + body_size))
    out += INT32.pack(correlation_id)
    out += tags
    return out


def encode_request(message: Struct, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request frame, size prefix included."""
    out = request_prefix(_key_of(message, Kind.REQUEST), api_version, correlation_id, client_id, 0)
    return _framed(out, message, api_version)


def encode_response(message: Struct, api_version: int, correlation_id: int) -> bytes:
    """A whole response frame, size prefix included."""
    out = response_prefix(_key_of(message, Kind.RESPONSE), api_version, correlation_id, 0)
    return _framed(out, message, api_version)


def _framed(out: bytearray, message: Struct, api_version: int) -> bytes:
    encode_into(out, message, api_version)
    INT32.pack_into(out, 0, len(out) - SIZE_BYTES)
    return bytes(out)


def _key_of(message: Struct, kind: Kind) -> int:
    spec = spec_of(type(message))
    if spec.api_key is None or spec.kind is not kind:
        raise TypeError(f"{type(message).__name__} is not a {kind.value}")
    return spec.api_key


def describe(header: RequestHeader) -> str:
    """A request in a log line: `Fetch v12 #7 from 'rdkafka'`."""
    name = api_name(header.api_key)
    return f"{name} v{header.api_version} #{header.correlation_id} from {header.client_id!r}"
