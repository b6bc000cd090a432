"""Values of Protobuf schemas: JSON on the HTTP side, and in Kafka a message behind the path of its indexes.

`.proto` text (or a serialized descriptor, which some registries keep instead) becomes descriptors: `sources`, with the
`compiler` in a process of its own. They live in a pool of their own: `schema_file`. Its messages are found by name or
by `message_path`. `codec` converts; what does not fit is found by `fitting`.
"""

from services.sidecar.formats.protobuf.codec import codec_of

__all__ = ["codec_of"]
