"""Settings of the job `traffic`."""

from __future__ import annotations

from pydantic import BaseModel, Field


class TrafficSettings(BaseModel):
    """For how long its rows are kept; 0 is for ever."""

    traffic_minutes_days: int = Field(default=7, ge=0, le=36_500)
    """Days that traffic by minute is kept."""
    traffic_hours_days: int = Field(default=90, ge=0, le=36_500)
    """Days that traffic by hour is kept."""
    traffic_days_days: int = Field(default=0, ge=0, le=36_500)
    """Days that traffic by day is kept."""
