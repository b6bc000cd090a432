"""The settings of a sidecar about streams."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, PositiveInt, model_validator
from pydantic_settings import NoDecode

from mesh.settings import Split
from services.sidecar.streams.records import OnError


class StreamsSettings(BaseModel):
    """A part of SidecarSettings."""

    streams: Annotated[tuple[str, ...], Split, NoDecode] = ()
    """Topologies that run here: names of entry points (group `kafka_mesh.topologies`), `*` for all of these, or
    `package.module:name` of a Topology, or of a function that makes one. See `docs/how-to/topologies.md`."""
    streams_application_id: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,100}$")
    """The prefix of groups, changelogs and repartitions; sidecars with the same prefix share the work. Empty:
    service_id."""
    streams_threads: int = Field(default=1, ge=1, le=64)
    """Threads of each topology; each thread has partitions of its own."""
    streams_standby: bool = False
    """Whether this sidecar follows the state of other instances, so that a takeover need not restore that state."""
    streams_on_error: OnError = OnError.DEAD_LETTER
    """The handling of a record for which code of a topology raises: `dead_letter`, or `stop` in front of the record."""
    streams_on_unreadable: Literal["dead_letter", "skip", "stop"] = "dead_letter"
    """The handling of a record that does not fit its format."""
    streams_auto_offset_reset: Literal["earliest", "latest"] = "earliest"
    """The offset reset for partitions without a committed offset."""
    streams_round_records: PositiveInt = 1_000
    """The most records of a round, which is one transaction."""
    streams_round_bytes: PositiveInt = 4 * 1024 * 1024
    """The most bytes of a round."""
    streams_linger_ms: int = Field(default=5, ge=0)
    """The wait of a round for more records."""
    streams_batch_records: int = Field(default=100, ge=1, le=100_000)
    """The number of a round's records in one request to the backend."""
    streams_transaction_timeout_ms: int = Field(default=10_000, ge=1_000)
    """The longest transaction of a round, and so the longest wait of a takeover for an open transaction."""
    streams_max_poll_ms: int = Field(default=300_000, ge=10_000)
    """The longest computation of a round, before the group gives its partitions to others."""
    streams_max_store_bytes: PositiveInt = 10 * 1024**3
    """The size of one partition of one store, at most. Larger state belongs to the Spark pipeline."""
    streams_replication_factor: int = Field(default=-1, ge=-1, le=32_767)
    """The replication factor of new changelogs and repartitions; -1 means the brokers' default."""
    streams_read_timeout_ms: PositiveInt = 5_000
    """The longest wait of a read while its state is being restored."""
    streams_clean_up: bool = False
    """Whether local state is deleted at the start, and restored from changelogs."""

    @model_validator(mode="after")
    def _named_once(self) -> "StreamsSettings":
        if len(set(self.streams)) < len(self.streams):
            raise ValueError(f"streams names a topology twice: {', '.join(self.streams)}")
        return self
