"""What the pipeline's settings say about `serve`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, model_validator
from pydantic_settings import NoDecode

from mesh.settings import Address, Split, WordList


class ContinuousJob(Enum):
    """A job that goes on for as long as serve does."""

    AUDIT = "audit"
    TRAFFIC = "traffic"
    ARCHIVE = "archive"


class ServingSettings(BaseModel):
    """A part of PipelineSettings."""

    name: str = Field(default="pipeline-1", pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$")
    """Who this member is, for control: one process for each name."""
    metrics_listen: Address = "127.0.0.1:7174"
    """/metrics, /live, /ready."""
    jobs: Annotated[tuple[ContinuousJob, ...], Split, NoDecode] = ()
    """Jobs that go on for as long as serve does, each in a driver of its own: audit, traffic, archive."""
    archive_folder: str = ""
    """Of the job archive: a path, or a URL that Hadoop knows. Copies read it for what Kafka no longer holds."""
    archive_topics: WordList = ()
    """Of the job archive: what it archives."""
    max_drivers: int = Field(default=0, ge=0, le=50)
    """Orders that are carried out at a time; the others wait. 0: as many as fit into memory and cores, at most 5."""
    driver_niceness: int = Field(default=10, ge=0, le=19)
    """How much drivers leave the processors to others, as `nice` counts it; 0: they take what they can."""
    driver_attempts: PositiveInt = 5
    """How often in a row a driver may die without having come further, before its replay has failed."""
    driver_stop_s: PositiveFloat = 20.0
    """How long a driver that is told to stop may take to put everything in order, before it is killed."""
    driver_silence_s: PositiveFloat = 300.0
    """How long the driver of a continuous job may report nothing, or a batch without progress, beside the time between
    two looks for records; then the driver hangs, is killed, and another one is started.
    """

    @model_validator(mode="after")
    def _archive_goes_somewhere(self) -> ServingSettings:
        if ContinuousJob.ARCHIVE in self.jobs and not (self.archive_folder and self.archive_topics):
            raise ValueError("jobs has archive: say archive_folder and archive_topics too")
        return self
