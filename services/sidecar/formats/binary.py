"""Bytes, written in JSON as base64 text."""

import base64
import binascii

from mesh.json_types import type_name
from mesh.schemas.schema import FormatError


class Binary:
    """Base64 (RFC 4648, with padding) on the HTTP side, the bytes themselves in Kafka."""

    def encode(self, value: object) -> bytes:
        if not isinstance(value, str):
            raise FormatError(f"{type_name(value)} found, base64 text expected")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise FormatError(f"not base64: {error}") from None

    def decode(self, data: bytes) -> str:
        return base64.b64encode(data).decode("ascii")
