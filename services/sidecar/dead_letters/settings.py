"""Settings of dead letters, and of the jobs that bring records again."""

from pydantic import BaseModel, Field, PositiveInt, model_validator

from mesh.topics import is_topic_name


class DeadLetterSettings(BaseModel):
    """A part of SidecarSettings."""

    dead_letter_enabled: bool = True
    """Whether records that the backend could not process are kept; otherwise they are counted and audited only. See
    `docs/concepts/dead-letters.md`."""
    dead_letter_extension: str = Field(default=".dlq", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """The suffix that turns a topic's name into the name of its topic of dead letters."""
    dead_letter_create_topics: bool = True
    """Whether the reactive consumer makes the topics of its dead letters when it starts, if they are missing."""
    max_running_jobs: PositiveInt = 4
    """Replays and redrives that are carried out at a time; others wait for their turn. See
    `docs/how-to/replay-and-redrive.md`."""
    max_job_round_bytes: PositiveInt = 1_048_576
    """Keys and values that a job that writes to topics moves in one transaction."""
    dead_letter_controller_topic: str = Field(default="", max_length=249)
    """The topic in which the original's sidecars exchange commands for replays; empty for none.

    This sidecar runs its commands as jobs, and writes a command for each call in the original's shape.
    """
    dead_letter_controller_group: str = Field(default="", pattern=r"^([A-Za-z0-9._-]{1,200})?$")
    """The group that reads that topic; one member carries out each command.

    Empty for `<reactive_group>-replaystream`.
    """

    @model_validator(mode="after")
    def _controller_is_a_topic(self) -> "DeadLetterSettings":
        if self.dead_letter_controller_topic and not is_topic_name(self.dead_letter_controller_topic):
            raise ValueError(
                f"dead_letter_controller_topic {self.dead_letter_controller_topic!r} is not the name of a topic"
            )
        return self

    @property
    def written_extension(self) -> str:
        """The extension of topics that dead letters are written to; empty if no dead letter is written."""
        return self.dead_letter_extension if self.dead_letter_enabled else ""
