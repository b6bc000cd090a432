"""Settings of consumer instances."""

from pydantic import BaseModel, Field, PositiveInt

from mesh.subscriptions import OffsetReset


class ConsumingSettings(BaseModel):
    """A part of SidecarSettings."""

    consumers_enabled: bool = True
    """Whether consuming is served; the original's start-up hook."""
    auto_offset_reset: OffsetReset = "earliest"
    """The offset reset of instances that name none, for partitions without a committed offset."""
    max_instances: PositiveInt = 50
    """The most consumer instances at once."""
    instance_timeout_ms: PositiveInt = 300_000
    """An instance without a call for this long is closed."""
    request_timeout_ms: PositiveInt = 1_000
    """The longest wait of a read for records, unless the instance sets another."""
    max_read_ms: PositiveInt = 60_000
    """The upper bound of the wait that an instance or a read may request."""
    read_linger_ms: int = Field(default=10, ge=0)
    """How long a read that has a record waits for more."""
    request_max_bytes: PositiveInt = 102_400
    """Keys and values of one read; a larger record still comes, alone."""
    max_poll_records: PositiveInt = 500
    """The most records of one read."""
    prefetch_bytes: PositiveInt = 1024 * 1024
    """The most that an instance fetches ahead."""
    commit_timeout_ms: PositiveInt = 10_000
    """The time that a commit of offsets may take."""
    session_timeout_ms: PositiveInt = 10_000
    """The time that a group keeps the place of an instance whose sidecar was killed.

    After that the instance gets its partitions again. Static members get them at once.
    """
    stream_window: PositiveInt = 500
    """Records of one stream that may wait for acknowledgement, if the stream sets no value of its own."""
    max_stream_window: PositiveInt = 10_000
    """The largest value that a stream may set."""
    stream_heartbeat_ms: PositiveInt = 15_000
    """The interval at which a stream without records shows a sign of life."""
