"""Settings of the reactive consumers. The settings of `delivering` are about the backend's address and its failures."""

from pydantic import BaseModel, Field, PositiveInt, model_validator

from mesh.settings import WordList
from mesh.subscriptions import (
    Filter,
    Group,
    LingerMs,
    MaxBatchBytes,
    MaxBatchRecords,
    MaxConcurrency,
    OnUnreadable,
    Path,
    Subscription,
    TopicPattern,
)
from mesh.topics import is_topic_name
from services.sidecar.consuming.instance_values import GroupProtocol, Interest
from services.sidecar.reactive.subscriptions import MOST


class ReactiveSettings(BaseModel):
    """A part of SidecarSettings."""

    reactive_enabled: bool | None = None
    """Whether the sidecar reads by itself and posts to the backend. By default it does so if there is a topic to read.
    This is the original's start-up hook."""
    reactive_topics: WordList = ()
    """The topics to read: see `docs/concepts/reactive-consumer.md`."""
    reactive_topic_pattern: TopicPattern = ""
    """A pattern in place of topics, which the whole name of a topic must match."""
    reactive_group: Group = "group1"
    """The consumer's group."""
    reactive_name: str = Field(default="", pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]{0,62})?$")
    """The consumer's name for operators within the group; empty for the sidecar's name."""
    reactive_group_instance_id: str = ""
    """Makes the consumer a static member of its group: it may be away for a session time-out without a rebalance."""
    reactive_group_protocol: GroupProtocol = GroupProtocol.CLASSIC
    """`classic`, or `consumer` (KIP-848), where the broker assigns the partitions."""
    reactive_max_concurrency: MaxConcurrency = 50
    """Batches that the backend has at a time, over all partitions; each partition has at most one batch there."""
    reactive_order_by_key: bool = False
    """Whether order is kept for each key only: the backend may then have several batches of one partition."""
    reactive_max_batch_records: MaxBatchRecords = 100
    """The most records of a batch."""
    reactive_max_batch_bytes: MaxBatchBytes | None = None
    """The most bytes of a batch's keys and values; empty: as `REQUEST_MAX_BYTES`. A larger record goes alone."""
    reactive_linger_ms: LingerMs = 1
    """The wait of a batch that is not full for more records."""
    reactive_max_held_records: PositiveInt = 20_000
    """Records read ahead of the backend, over all partitions. Each partition has the same share, and rests when the
    share is full."""
    reactive_max_held_bytes: PositiveInt = 32 * 1024 * 1024
    """The same in bytes."""
    reactive_filter: Filter = ""
    """A CEL expression. The backend gets only records for which it is true; all others count as done. Empty for all."""
    reactive_commit_interval_ms: PositiveInt = 200
    """The time after which the consumer commits. Records that were not committed come again after a kill."""
    reactive_commit_records: PositiveInt = 1_000
    """The number of records after which the consumer commits."""
    reactive_revoke_timeout_ms: PositiveInt = 10_000
    """The time that batches on their way have to end when the group revokes their partition."""
    reactive_on_unreadable: OnUnreadable = "dead_letter"
    """The handling of a record that does not fit its format. Its bytes become a dead letter, or the record is skipped,
    or its partition stops in front of the record until an operator seeks."""
    reactive_exactly_once: bool = False
    """Whether replies and dead letters are written in one transaction with the group's offsets."""
    reactive_reply_topics: WordList = ()
    """Topics that replies may go to in transactions; they are checked before the first record is read."""
    reactive_transactional_id: str = ""
    """The transactional id of these transactions; empty for an id made of the sidecar's name."""
    subscriptions: tuple[Subscription, ...] = Field(default=(), max_length=MOST)
    """Further subscriptions (JSON or YAML), each with a name; members that it lacks are as these settings have them."""
    subscriptions_from_backend: bool = False
    """Whether the sidecar asks its backend for further subscriptions when it starts."""
    subscriptions_path: Path = "/subscriptions"
    """The backend's path for that question."""
    subscriptions_attempts: PositiveInt = 60
    """How often the sidecar asks a backend that does not answer, up to 5 s apart."""
    subscriptions_from_control: bool = True
    """Whether the sidecar runs the subscriptions that operators declare for it (`meshctl sidecars subscriptions`)."""

    @model_validator(mode="after")
    def _reads_something(self) -> "ReactiveSettings":
        if self.reactive_topics and self.reactive_topic_pattern:
            raise ValueError("reactive_topics and reactive_topic_pattern exclude each other; set one")
        for topic in (*self.reactive_topics, *self.reactive_reply_topics):
            if not is_topic_name(topic):
                raise ValueError(f"reactive: {topic!r} is not the name of a topic")
        if self.reactive_enabled and not self.reads_by_itself:
            raise ValueError(
                "reactive_enabled, and nothing to read: set reactive_topics, reactive_topic_pattern, subscriptions or "
                "subscriptions_from_backend"
            )
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
        """Whether there is a reactive consumer, or the backend may declare one."""
        return self.reactive_enabled is not False and bool(
            self.reactive_interest or self.subscriptions or self.subscriptions_from_backend
        )

    @property
    def reactive_interest(self) -> Interest:
        """The topics of the subscription without a name."""
        return Interest(topics=self.reactive_topics, pattern=self.reactive_topic_pattern)
