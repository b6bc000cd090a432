"""Settings of the reactive consumer. How the backend is reached, and what follows when it fails: see `delivering`."""

import re
from typing import Literal

from pydantic import BaseModel, Field, PositiveInt, model_validator

from mesh.settings import WordList
from mesh.topics import is_topic_name
from services.sidecar.consuming.records import GroupProtocol


class ReactiveSettings(BaseModel):
    """A part of SidecarSettings."""

    reactive_enabled: bool | None = None
    """Whether the sidecar reads by itself and posts to the backend; unless it is said: where there is a topic to read.
    The original's start-up hook."""
    reactive_topics: WordList = ()
    reactive_topic_pattern: str = Field(default="", max_length=1_000)
    """What is read: topics, or all whose whole name matches."""
    reactive_group: str = Field(default="group1", pattern=r"^[A-Za-z0-9._-]{1,200}$")
    reactive_name: str = Field(default="", pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]{0,62})?$")
    """The consumer's group, and what operators call it in there; empty for the sidecar's name."""
    reactive_group_instance_id: str = ""
    """Makes it a static member of its group: one that may be away for a session without a rebalance."""
    reactive_group_protocol: GroupProtocol = GroupProtocol.CLASSIC
    """`classic`, or `consumer` (KIP-848), where the broker decides who reads what."""
    reactive_max_concurrency: int = Field(default=50, ge=1, le=1_000)
    """Batches that are with the backend at a time, over all partitions; of each partition one."""
    reactive_order_by_key: bool = False
    """Order is kept for each key only: several batches of one partition may be with the backend."""
    reactive_max_batch_records: int = Field(default=100, ge=1, le=100_000)
    reactive_max_batch_bytes: int | None = Field(default=None, ge=1, le=64 * 1024 * 1024)
    """How large a batch becomes; bytes are keys and values, request_max_bytes unless it is said. A record that is
    larger goes alone."""
    reactive_linger_ms: int = Field(default=1, ge=0, le=60_000)
    """How long a batch that is not full waits for more records."""
    reactive_max_held_records: PositiveInt = 20_000
    reactive_max_held_bytes: PositiveInt = 32 * 1024 * 1024
    """What is read ahead of the backend, over all partitions. Each has the same share, and rests when it is full."""
    reactive_filter: str = ""
    """CEL: only records for which it is true concern the backend, all others count as done; empty for all."""
    reactive_commit_interval_ms: PositiveInt = 200
    reactive_commit_records: PositiveInt = 1_000
    """After how long, and how many records, the group is told how far it is; what was not told comes again after a
    kill."""
    reactive_revoke_timeout_ms: PositiveInt = 10_000
    """How long batches on their way may take to end when the group takes their partition away."""
    reactive_on_unreadable: Literal["dead_letter", "skip", "stop"] = "dead_letter"
    """What happens to a record that does not fit its format: its bytes become a dead letter, it is left out, or its
    partition stops in front of it until an operator seeks."""
    reactive_exactly_once: bool = False
    """Whether replies and dead letters are written in one transaction with the group's offsets."""
    reactive_reply_topics: WordList = ()
    """Where replies may go, if in transactions: looked at before anything is read."""
    reactive_transactional_id: str = ""
    """As whom these transactions are written; empty for one made of the sidecar's name."""

    @model_validator(mode="after")
    def _reads_something(self) -> "ReactiveSettings":
        if self.reactive_topics and self.reactive_topic_pattern:
            raise ValueError("reactive_topics and reactive_topic_pattern exclude each other; set one")
        for topic in (*self.reactive_topics, *self.reactive_reply_topics):
            if not is_topic_name(topic):
                raise ValueError(f"reactive: {topic!r} is not the name of a topic")
        try:
            re.compile(self.reactive_topic_pattern)
        except re.error as error:
            raise ValueError(f"reactive_topic_pattern {self.reactive_topic_pattern!r} is none: {error}") from None
        if self.reactive_enabled and not self.reads_by_itself:
            raise ValueError("reactive_enabled, and nothing to read: set reactive_topics or reactive_topic_pattern")
        return self

    @model_validator(mode="after")
    def _exactly_once_is_possible(self) -> "ReactiveSettings":
        if self.reactive_exactly_once and self.reactive_order_by_key:
            raise ValueError(
                "reactive_exactly_once and reactive_order_by_key exclude each other: offsets say that all before them "
                "is done, and keys of one partition are not done in its order; set one"
            )
        return self

    @property
    def reads_by_itself(self) -> bool:
        """Whether there is a reactive consumer."""
        return self.reactive_enabled is not False and bool(self.reactive_topics or self.reactive_topic_pattern)
