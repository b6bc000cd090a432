"""What a sidecar's settings say about streams."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, PositiveInt, model_validator
from pydantic_settings import NoDecode

from mesh.settings import Split
from services.sidecar.streams.records import OnError


class StreamsSettings(BaseModel):
    """A part of SidecarSettings."""

    streams: Annotated[tuple[str, ...], Split, NoDecode] = ()
    """Topologies that run here: names of entry points (group `kafka_mesh.topologies`), `*` for all of these, or
    `package.module:name` of a Topology, or of a function that makes one."""
    streams_application_id: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,100}$")
    """What groups, changelogs and repartitions begin with; sidecars with the same one share the work. Empty:
    service_id."""
    streams_threads: int = Field(default=1, ge=1, le=64)
    """Threads of each topology; each has partitions of its own."""
    streams_standby: bool = False
    """Whether the state of other instances is followed, so that a takeover does not have to restore it."""
    streams_on_error: OnError = OnError.DEAD_LETTER
    """What happens when code of a topology raises: `dead_letter`, or `stop` in front of the record."""
    streams_on_unreadable: Literal["dead_letter", "skip", "stop"] = "dead_letter"
    """What happens to a record that does not fit its format."""
    streams_auto_offset_reset: Literal["earliest", "latest"] = "earliest"
    streams_round_records: PositiveInt = 1_000
    streams_round_bytes: PositiveInt = 4 * 1024 * 1024
    streams_linger_ms: int = Field(default=5, ge=0)
    """A round is one transaction: how many records it takes, their bytes, and how long it waits for more of them."""
    streams_batch_records: int = Field(default=100, ge=1, le=100_000)
    """How many records of a round the backend is asked about at a time."""
    streams_transaction_timeout_ms: int = Field(default=10_000, ge=1_000)
    """How long the transaction of a round may take; so long, at most, a takeover waits for one that was left open."""
    streams_max_poll_ms: int = Field(default=300_000, ge=10_000)
    """How long a round may compute before its group gives the partitions to others."""
    streams_max_store_bytes: PositiveInt = 10 * 1024**3
    """Of one partition of one store. What is larger belongs to the Spark pipeline."""
    streams_replication_factor: int = Field(default=-1, ge=-1, le=32_767)
    """Of changelogs and repartitions that are made; -1: as the brokers say."""
    streams_read_timeout_ms: PositiveInt = 5_000
    """How long a question for state waits while it is being restored."""
    streams_clean_up: bool = False
    """Whether local state is thrown away at the start, and restored from changelogs."""

    @model_validator(mode="after")
    def _named_once(self) -> "StreamsSettings":
        if len(set(self.streams)) < len(self.streams):
            raise ValueError(f"streams names a topology twice: {', '.join(self.streams)}")
        return self
