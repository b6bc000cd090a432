"""Formats whose schemas are in a schema registry, where no registry is configured: refused with a sentence."""

from typing import NoReturn

from services.sidecar.formats.codec import FormatError

WHAT_TO_SET = "needs a schema registry: set schema_registry_url (KAFKA_MESH_SIDECAR_SCHEMA_REGISTRY_URL)"


class NeedsRegistry:
    """Stands for a format whose schemas live in a schema registry."""

    def encode(self, value: object) -> NoReturn:
        raise FormatError(WHAT_TO_SET)

    def decode(self, data: bytes) -> NoReturn:
        raise FormatError(WHAT_TO_SET)
