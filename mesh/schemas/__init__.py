"""Values that name a schema of a registry: prefixes, schemas, readers, checks of content, questions to a registry.

Sidecars and the pipeline ask a registry by clients of their own, with their own patience.
"""
