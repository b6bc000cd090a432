"""Formats that need a schema registry.

They are known by name and refused with a sentence until the sidecar can talk to one.
"""

from typing import NoReturn

from services.sidecar.formats.codec import FormatError


class NeedsRegistry:
    """Stands for a format whose schemas live in a schema registry."""

    available = False

    def encode(self, value: object) -> NoReturn:
        raise FormatError("needs a schema registry, which this sidecar does not use yet")

    def decode(self, data: bytes) -> NoReturn:
        raise FormatError("needs a schema registry, which this sidecar does not use yet")
