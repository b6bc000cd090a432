"""Protobuf schemas of a registry, ready for use.

`sources` makes descriptors of `.proto` text, or of a serialized descriptor, which some registries keep instead. The
`compiler` runs in its own process. `schema_file` puts the descriptors of a schema into a pool of its own, and finds its
messages by name or by `message_path`. `reading` makes JSON values of messages.
"""
