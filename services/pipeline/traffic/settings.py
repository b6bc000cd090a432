"""Settings of the job `traffic`."""

from __future__ import annotations

from pydantic import BaseModel, Field


class TrafficSettings(BaseModel):
    """A part of PipelineSettings. Days of 0 mean for ever."""

    traffic_topic: str = "mesh.traffic"
    """Topic of the home cluster with the counters of gateways and sidecars."""
    traffic_minutes_days: int = Field(default=7, ge=0, le=36_500)
    """Days that traffic by minute is kept."""
    traffic_hours_days: int = Field(default=90, ge=0, le=36_500)
    """Days that traffic by hour is kept."""
    traffic_days_days: int = Field(default=400, ge=0, le=36_500)
    """Days that traffic by day is kept."""
