"""What the pipeline's settings say about archives."""

from __future__ import annotations

from pydantic import BaseModel, Field, NonNegativeFloat, PositiveFloat, PositiveInt, SecretStr


class ArchivesSettings(BaseModel):
    """A part of PipelineSettings."""

    archive_options: dict[str, SecretStr] = Field(default_factory=dict)
    """What the store of the archive wants to know when it is read without Spark: see the README."""
    archive_interval_s: PositiveFloat = 300.0
    """How often a continuous archive looks for new records. Each look that finds some writes a file, or several."""
    compact_after_s: NonNegativeFloat = 3600.0
    """How long after its end (UTC) a day of the archive is taken for finished."""
    archive_file_mb: PositiveInt = 256
    """About how large files of finished days become."""

    @property
    def store_options(self) -> dict[str, str]:
        """`archive_options` as stores take them."""
        return {name: value.get_secret_value() for name, value in self.archive_options.items()}
