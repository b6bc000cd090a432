"""Bytes whose format nobody has named: JSON if they are JSON, else text if they are text, else base64.

Schemas are not looked for here: `record_reader` does that first, where there is a registry.
"""

import re
from typing import Literal

from mesh.schemas.schema import FormatError
from services.sidecar.formats.binary import Binary
from services.sidecar.formats.plain_json import Json
from services.sidecar.formats.text import String

Detected = Literal["json", "string", "binary"]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that no text has: a number of 8 bytes is valid UTF-8, and still no text."""
_JSON, _STRING, _BINARY = Json(), String(), Binary()


def detected(data: bytes) -> tuple[Detected, object]:
    """The format of the bytes by its label, and their JSON value in that format."""
    try:
        return "json", _JSON.decode(data)
    except FormatError:
        pass
    try:
        text = _STRING.decode(data)
    except FormatError:
        return "binary", _BINARY.decode(data)
    return ("binary", _BINARY.decode(data)) if _CONTROL.search(text) else ("string", text)


class Auto:
    """The format of reads whose caller leaves the format to each record."""

    def encode(self, value: object) -> bytes:
        raise FormatError("of format auto, which is for reads only; name the format to write in")

    def decode(self, data: bytes) -> object:
        return detected(data)[1]
