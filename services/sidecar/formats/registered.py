"""Formats whose schemas are in a schema registry: if no registry is configured, values are refused with a reason."""

from typing import NoReturn

from mesh.schemas.schema import FormatError

WHAT_TO_SET = "needs a schema registry: set schema_registry_url (KAFKA_MESH_SIDECAR_SCHEMA_REGISTRY_URL)"


class NeedsRegistry:
    """The codec of a format that needs a schema registry, in a sidecar that has none."""

    def encode(self, value: object) -> NoReturn:
        raise FormatError(WHAT_TO_SET)

    def decode(self, data: bytes) -> NoReturn:
        raise FormatError(WHAT_TO_SET)
