"""Values of Protobuf schemas: JSON on the HTTP side, and in Kafka a message behind the path of its indexes.

`sources` makes descriptors of `.proto` text, or of a serialized descriptor, which some registries keep instead. The
`compiler` runs in its own process. `schema_file` puts the descriptors of a schema into a pool of its own, and finds its
messages by name or by `message_path`. `codec` converts values; `fitting` finds the part of a value that does not fit.
"""

from services.sidecar.formats.protobuf.codec import codec_of

__all__ = ["codec_of"]
