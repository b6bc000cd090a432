"""The gateway: the data plane for Kafka clients (README.md)."""

from services.gateway import copies

WHY_NOT_COMPILED = copies.taken()
"""Why sources run in the place of their compiled copy, where they do."""
