"""Requests and answers as they stand on the wire: their size, their header, their body.

Only the first request of a connection can be read alone. An answer names no API: its reader must know the request.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass

from judge.protocol.schema import Message, ProtocolError, Reader
from judge.replay.codec import decode, decode_beginning, encode
from judge.replay.specification import API_VERSIONS, Specifications

HEAD = struct.Struct(">hhi")


@dataclass(frozen=True, slots=True)
class Request:
    """One frame of a client, without its size."""

    api: str
    key: int
    version: int
    correlation_id: int
    header: bytes
    body: bytes
    message: Message | None
    """None: no jar describes this version, or the client writes it otherwise than Kafka does."""
    rest: bytes = b""
    """Behind the message: librdkafka 2.16 leaves three bytes there when it asks for all topics."""

    @property
    def title(self) -> str:
        return f"{self.api} v{self.version}"


@dataclass(frozen=True, slots=True)
class Answer:
    correlation_id: int
    body: bytes
    message: Message | None


def request_of(specs: Specifications, frame: bytes) -> Request:
    """Raises ProtocolError if the frame has no request's header."""
    if len(frame) < HEAD.size:
        raise ProtocolError(f"a request of {len(frame)} bytes")
    key, version, correlation_id = HEAD.unpack_from(frame)
    reader = Reader(frame, HEAD.size)
    [size] = struct.unpack(">h", reader.take(2))
    reader.take(max(size, 0))
    if specs.is_flexible(key, version):
        _pass_tags(reader)
    body = frame[reader.at :]
    spec = specs.find(key, version, is_request=True)
    message, end = None, len(body)
    if spec is not None:
        with contextlib.suppress(ProtocolError):
            message, end = decode_beginning(spec, version, body)
    return Request(specs.name(key), key, version, correlation_id, frame[: reader.at], body, message, body[end:])


def answer_of(specs: Specifications, request: Request, frame: bytes) -> Answer:
    """Raises ProtocolError if the frame is no answer to such a request."""
    reader = Reader(frame)
    [correlation_id] = struct.unpack(">i", reader.take(4))
    version = request.version
    spec = specs.find(request.key, version, is_request=False)
    if request.key == API_VERSIONS:
        return _api_versions(specs, version, correlation_id, frame[4:])
    if specs.is_flexible(request.key, version):
        _pass_tags(reader)
    body = frame[reader.at :]
    return Answer(correlation_id, body, None if spec is None else decode(spec, version, body))


def with_message(specs: Specifications, request: Request, message: Message) -> bytes:
    """The frame with another body."""
    spec = specs.find(request.key, request.version, is_request=True)
    if spec is None:
        raise ProtocolError(f"{request.title}: no specification")
    return request.header + encode(spec, request.version, message) + request.rest


def _api_versions(specs: Specifications, version: int, correlation_id: int, body: bytes) -> Answer:
    """Its header is never flexible. An endpoint that does not know the version answers in version 0."""
    for each in (version, 0):
        spec = specs.find(API_VERSIONS, each, is_request=False)
        if spec is None:
            continue
        try:
            return Answer(correlation_id, body, decode(spec, each, body))
        except ProtocolError:
            continue
    raise ProtocolError(f"ApiVersions v{version}: no answer in this version and none in version 0")


def _pass_tags(reader: Reader) -> None:
    for _ in range(reader.varint()):
        reader.varint()
        reader.take(reader.varint())
