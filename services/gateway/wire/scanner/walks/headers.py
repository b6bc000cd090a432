"""Headers: the bytes between a frame's size and its body."""

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import Buffer, truncated
from services.gateway.wire.scanner.walks import octets, readers

_NEVER = 1 << 15
_FLEXIBLE_SINCE = [_NEVER if (since := flexible_since(key)) is None else since for key in range(256)]
"""By api key; keys beyond are none of Kafka's."""
_KEYS = len(_FLEXIBLE_SINCE)
_CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RequestHeader:
    __slots__ = ("api_key", "api_version", "body_offset", "client_id", "correlation_id")
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int
    """The offset of the body in the buffer that was parsed."""

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_offset: int
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = body_offset


class ResponseHeader:
    __slots__ = ("body_offset", "correlation_id")
    correlation_id: int
    body_offset: int


def parse_request_header(buffer: Buffer, start: int, end: int) -> RequestHeader:
    """The header of the request in `buffer[start:end]` (the size prefix lies before `start`).

    Unknown api keys are parsed as non-flexible, so that the log line about them can name the client.
    """
    readers.enclose("request header", buffer, start, end)
    if end - start < 8:
        raise truncated("request header", start, 8, end)
    data = octets.of(buffer)
    header = RequestHeader.__new__(RequestHeader)
    header.api_key = octets.int16(data, start)
    header.api_version = octets.int16(data, start + 2)
    header.correlation_id = octets.int32(data, start + 4)
    header.client_id = None
    at = start + 8
    if header.api_key != _CONTROLLED_SHUTDOWN or header.api_version != 0:  # that one has no client id
        begin, at = readers.nullable_text(data, at, end, False, "request header.client_id")
        if begin >= 0:
            header.client_id = readers.decoded(data, begin, at, "request header.client_id")
        if _is_flexible(header.api_key, header.api_version):
            at = readers.skip_tags(data, at, end, "request header.tags")
    header.body_offset = at
    return header


def parse_response_header(buffer: Buffer, start: int, end: int, api_key: int, api_version: int) -> ResponseHeader:
    """The header of the response in `buffer[start:end]` to a request of this key and version."""
    readers.enclose("response header", buffer, start, end)
    if end - start < 4:
        raise truncated("response header", start, 4, end)
    data = octets.of(buffer)
    header = ResponseHeader.__new__(ResponseHeader)
    header.correlation_id = octets.int32(data, start)
    at = start + 4
    if api_key != _API_VERSIONS and _is_flexible(api_key, api_version):  # a client reads that one before it knows
        at = readers.skip_tags(data, at, end, "response header.tags")
    header.body_offset = at
    return header


def int32_at(buffer: Buffer, at: int) -> int:
    """A size or a correlation id."""
    readers.enclose("header", buffer, at, at + 4)
    return octets.int32(octets.of(buffer), at)


def patch_correlation_id(buffer: bytearray | memoryview, offset: int, correlation_id: int) -> None:
    """Write the id at its own offset: a request's start + `frames.CORRELATION_OFFSET`, a response's start."""
    readers.enclose("header", buffer, offset, offset + 4)
    octets.put32(buffer, offset, correlation_id)


def _is_flexible(api_key: int, api_version: int) -> bool:
    return 0 <= api_key < _KEYS and api_version >= _FLEXIBLE_SINCE[api_key]
