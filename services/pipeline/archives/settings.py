"""The pipeline's settings of archives."""

from __future__ import annotations

from pydantic import BaseModel, Field, NonNegativeFloat, PositiveFloat, PositiveInt, SecretStr


class ArchivesSettings(BaseModel):
    """A part of PipelineSettings."""

    archive_options: dict[str, SecretStr] = Field(default_factory=dict)
    """Options of the archive's store if it is read without Spark: see `docs/how-to/archive-and-restore.md`."""
    archive_interval_s: PositiveFloat = 300.0
    """Seconds between two checks of a continuous archive for new records. Each check that finds some writes files."""
    compact_after_s: NonNegativeFloat = 3600.0
    """Seconds after its end (UTC) at which a day of the archive counts as finished."""
    archive_file_mb: PositiveInt = 256
    """Approximate size of the files of finished days."""

    @property
    def store_options(self) -> dict[str, str]:
        """`archive_options` with the secrets in clear, for `Store`."""
        return {name: value.get_secret_value() for name, value in self.archive_options.items()}
