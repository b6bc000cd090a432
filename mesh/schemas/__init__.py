"""Values that name a schema of a registry: prefixes, schemas, readers of Avro and Protobuf, questions to a registry.

Sidecars and the pipeline ask a registry by clients of their own, with their own patience.
"""
