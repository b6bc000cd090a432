"""How a key or a value looks in JSON, and how it looks in Kafka.

A format is one class here and one entry in `Format`.
"""

from services.sidecar.formats.codec import Codec, FormatError
from services.sidecar.formats.format import Format

__all__ = ["Codec", "Format", "FormatError"]
