"""The formats of keys and values: each converts between JSON and Kafka's bytes.

A format is one class here and one entry in `Format`.
"""

from mesh.schemas.schema import FormatError
from services.sidecar.formats.codec import Codec
from services.sidecar.formats.format import Format

__all__ = ["Codec", "Format", "FormatError"]
