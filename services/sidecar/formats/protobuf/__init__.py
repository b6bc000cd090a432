"""Values of Protobuf schemas: JSON on the HTTP side, and in Kafka a message behind the path of its indexes.

`mesh.schemas.protobuf` has the schemas, and reads messages. `codec` converts values; `fitting` finds the part of a
value that does not fit.
"""

from services.sidecar.formats.protobuf.codec import codec_of

__all__ = ["codec_of"]
