"""Settings of the parts that write records for callers."""

from typing import Literal

from pydantic import BaseModel, Field, PositiveInt

from mesh.settings import WordList
from services.sidecar.producing.produce_request import SubjectStrategy


class ProducingSettings(BaseModel):
    """A part of SidecarSettings."""

    producer_enabled: bool = True
    """Whether producing is served; the original's start-up hook."""
    max_queued_records: PositiveInt = 100_000
    """The most records that may wait for acknowledgement."""
    max_queued_bytes: PositiveInt = 32 * 1024 * 1024
    """The most bytes of records that may wait for acknowledgement."""
    queue_timeout_ms: PositiveInt = 5_000
    """How long a request waits for room among the records that wait for delivery, before it is turned away."""
    delivery_timeout_ms: PositiveInt = 30_000
    """The time for attempts to write a record."""
    unknown_topic_timeout_ms: PositiveInt = 1_000
    """How long a request waits for its topic to appear: a rule that adds it may be on its way."""
    linger_ms: int = Field(default=5, ge=0)
    """How long records wait for more, if many are on the way; as in Java's client since Kafka 4.0 (KIP-1030)."""
    batch_bytes: PositiveInt = 1_000_000
    """The largest batch for Kafka."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """The compression of batches for Kafka."""
    max_record_bytes: PositiveInt = 1_048_576
    """The largest record."""
    key_subject_strategy: SubjectStrategy = SubjectStrategy.TOPIC_NAME
    """The subjects of keys' schemas in requests that name none: see `docs/reference/sidecar-formats.md`."""
    value_subject_strategy: SubjectStrategy = SubjectStrategy.TOPIC_NAME
    """The subjects of values' schemas in requests that name none. A record's name is in the schema's text, which a
    request then has to send."""
    forward_authorization: bool = False
    """Whether the caller's Authorization header goes into the records; the original always does, which leaks tokens."""
    caller_id: str = ""
    """If set, each record carries this text in a header of the same name, in small letters."""
    max_produce_streams: PositiveInt = 50
    """The most produce requests at once that send line by line."""
    max_line_bytes: PositiveInt = 1_048_576
    """The longest line of such a request."""
    stream_idle_timeout_ms: PositiveInt = 60_000
    """The longest silence of such a request."""
    transactional_ids: WordList = ()
    """The transactional ids of the sidecar: a transaction uses the first id whose home cluster has the topics.

    Empty for one id, made of the sidecar's name. Each has its topic `<id>.idempotency` on its home.
    """
    max_waiting_transactions: PositiveInt = 100
    """The most requests that wait for their turn in a transaction."""
    transaction_timeout_ms: int = Field(default=30_000, ge=1_000)
    """How long one transaction may take, from its turn to its commit; also how long a request waits for its turn."""
    idempotency_keep_ms: PositiveInt = 86_400_000
    """The time that the first answer to a request with an Idempotency-Key is kept."""
    idempotency_max_keys: PositiveInt = 10_000
    """The most such answers."""
    idempotency_max_bytes: PositiveInt = 8 * 1024 * 1024
    """The most bytes of such answers."""
