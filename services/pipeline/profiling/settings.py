"""What the pipeline's settings say about profiles."""

from __future__ import annotations

from pydantic import BaseModel, SecretStr


class ProfilingSettings(BaseModel):
    """A part of PipelineSettings."""

    schema_registry_url: str = ""
    """Of a registry with Confluent's API: profiles tell by it what values are. Empty for none."""
    schema_registry_credentials: SecretStr | None = None
    """USER:PASSWORD."""
