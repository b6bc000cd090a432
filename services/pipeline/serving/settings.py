"""The pipeline's settings of `serve`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, model_validator
from pydantic_settings import NoDecode

from mesh.settings import Address, Split, WordList


class ContinuousJob(Enum):
    """A job that runs as long as `serve` runs."""

    AUDIT = "audit"
    TRAFFIC = "traffic"
    ARCHIVE = "archive"


class ServingSettings(BaseModel):
    """A part of PipelineSettings."""

    name: str = Field(default="pipeline-1", pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$")
    """The name of this member at control: one process for each name."""
    metrics_listen: Address = "127.0.0.1:7174"
    """/metrics, /live, /ready."""
    jobs: Annotated[tuple[ContinuousJob, ...], Split, NoDecode] = ()
    """Jobs that run as long as `serve` runs, each in a driver of its own: audit, traffic, archive."""
    archive_folder: str = ""
    """Folder of the job archive: a path, or a URL that Hadoop knows.

    Copies read it for records that Kafka has deleted.
    """
    archive_topics: WordList = ()
    """Topics that the job archive reads."""
    max_drivers: int = Field(default=0, ge=0, le=50)
    """Orders that are carried out at once; others wait. 0: as many as fit into memory and cores, at most 5."""
    driver_niceness: int = Field(default=10, ge=0, le=19)
    """Niceness of the drivers, as `nice` counts it; 0: they compete equally for the processors."""
    driver_attempts: PositiveInt = 5
    """Drivers that may die in a row without progress before the replay has failed."""
    driver_stop_s: PositiveFloat = 20.0
    """Seconds that a driver has for an orderly end after SIGTERM, before it is killed."""
    driver_silence_s: PositiveFloat = 300.0
    """Seconds that the driver of a continuous job may report nothing, or no progress of a batch.

    The time between two checks for records is added. After this time the driver counts as hanging: it is killed, and
    another one is started.
    """

    @model_validator(mode="after")
    def _archive_goes_somewhere(self) -> ServingSettings:
        if ContinuousJob.ARCHIVE in self.jobs and not (self.archive_folder and self.archive_topics):
            raise ValueError("jobs has archive: say archive_folder and archive_topics too")
        return self
