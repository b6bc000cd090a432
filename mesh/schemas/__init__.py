"""Values that name a schema of a registry: prefixes, schemas, and readers of Avro and Protobuf.

The caller asks the registry: each service has a client of its own, with its own patience.
"""
