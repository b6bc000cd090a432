"""Finalized features of a cluster ("metadata.version" says which Kafka it runs as), read with one ApiVersions request.

librdkafka's admin client does not return them. The request is fixed (version 3, KIP-584), the answer is read up to its
tagged fields. Over TLS or SASL the mesh does without these features.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

import structlog

from mesh.settings import host_port

API_VERSIONS_V3 = (
    bytes.fromhex("0012 0003 00000001 000a") + b"kafka-mesh" + bytes.fromhex("00 0b") + b"kafka-mesh" + b"\x022\x00"
)
"""api key 18, version 3, correlation id 1, client id; tagged fields; software name and version "2" as compact
strings; tagged fields.
"""
SUPPORTED_FEATURES_TAG, FINALIZED_FEATURES_TAG = 0, 2
LARGEST_ANSWER = 1 << 20

log = structlog.get_logger(__name__)


def finalized_features(addresses: Sequence[str], timeout: float) -> dict[str, str]:
    """Feature names with their level; empty when the first broker that answers has none (before Kafka 2.7)."""
    for address in addresses:
        try:
            with socket.create_connection(host_port(address), timeout) as connection:
                connection.settimeout(timeout)
                connection.sendall(struct.pack(">i", len(API_VERSIONS_V3)) + API_VERSIONS_V3)
                (size,) = struct.unpack(">i", _exactly(connection, 4))
                if not 0 < size <= LARGEST_ANSWER:
                    return {}
                return parse_features(_exactly(connection, size))
        except (OSError, ValueError, IndexError, struct.error) as error:
            log.debug("no features", address=address, reason=str(error))
    return {}


def parse_features(answer: bytes) -> dict[str, str]:
    """The finalized features in an ApiVersions response of version 3."""
    if answer[4:6] != b"\x00\x00":  # an old broker answers version 0 with UNSUPPORTED_VERSION
        return {}
    count, at = _varint(answer, 6)
    for _ in range(count - 1):
        _, at = _varint(answer, at + 6)  # key, min, max; no tagged fields
    at += 4  # throttle time
    tags, at = _varint(answer, at)
    features: dict[str, str] = {}
    for _ in range(tags):
        tag, at = _varint(answer, at)
        size, at = _varint(answer, at)
        if tag == FINALIZED_FEATURES_TAG:
            features = _features(answer[at : at + size])
        at += size
    return features


def _features(data: bytes) -> dict[str, str]:
    features: dict[str, str] = {}
    count, at = _varint(data, 0)
    for _ in range(count - 1):
        length, at = _varint(data, at)
        name = data[at : at + length - 1].decode()
        at += length - 1
        (highest,) = struct.unpack_from(">h", data, at)
        _, at = _varint(data, at + 4)
        features[name] = str(highest)
    return features


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise OSError("connection closed")
        data += part
    return data
