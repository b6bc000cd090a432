"""Settings of the state that outlives the process."""

from pathlib import Path

from pydantic import BaseModel, PositiveInt, field_validator


class StateSettings(BaseModel):
    """A part of SidecarSettings."""

    state_dir: Path | None = Path(".kafka-mesh/sidecar")
    """The folder in which consumer instances outlive the process; empty for none: after a restart only control knows
    them. See `docs/explanation/sidecar-restarts.md`."""
    restore_timeout_ms: PositiveInt = 3_000
    """How long a start waits for control's answer about this sidecar's instances."""
    takeover_timeout_ms: PositiveInt = 15_000
    """How long a start waits for another process of this name, on the same state folder, to give way."""

    @field_validator("state_dir", mode="before")
    @classmethod
    def _empty_means_none(cls, value: object) -> object:
        return value or None
