"""The pipeline's settings of profiles."""

from __future__ import annotations

from pydantic import BaseModel, SecretStr


class ProfilingSettings(BaseModel):
    """A part of PipelineSettings."""

    schema_registry_url: str = ""
    """URL of a registry with Confluent's API, which profiles use to find the format of values. Empty for none."""
    schema_registry_credentials: SecretStr | None = None
    """USER:PASSWORD."""
