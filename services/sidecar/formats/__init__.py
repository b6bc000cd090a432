"""The formats of keys and values: each converts between JSON and Kafka's bytes.

A format is one class here and one entry in `Format`.
"""

from services.sidecar.formats.codec import Codec, FormatError
from services.sidecar.formats.format import Format

__all__ = ["Codec", "Format", "FormatError"]
