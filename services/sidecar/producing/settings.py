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
    max_queued_bytes: PositiveInt = 32 * 1024 * 1024
    queue_timeout_ms: PositiveInt = 5_000
    """How long a request waits for room among the records that wait for delivery, before it is turned away."""
    delivery_timeout_ms: PositiveInt = 30_000
    unknown_topic_timeout_ms: PositiveInt = 1_000
    """How long a request waits for its topic to appear: a rule that adds it may be on its way."""
    linger_ms: int = Field(default=5, ge=0)
    """How long records wait for more, if many are on the way; as in Java's client since Kafka 4.0 (KIP-1030)."""
    batch_bytes: PositiveInt = 1_000_000
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """The batches for Kafka: their size, the time that they wait for more records, and their compression."""
    max_record_bytes: PositiveInt = 1_048_576
    key_subject_strategy: SubjectStrategy = SubjectStrategy.TOPIC_NAME
    value_subject_strategy: SubjectStrategy = SubjectStrategy.TOPIC_NAME
    """The subjects of schemas, for requests that say nothing of them: TopicNameStrategy, RecordNameStrategy or
    TopicRecordNameStrategy. A record's name is in the schema's text, which a request then has to send.
    """
    forward_authorization: bool = False
    """Whether the caller's Authorization header goes into the records; the original always does, which leaks tokens."""
    caller_id: str = ""
    """If set, each record carries it as header `caller_id`."""
    max_produce_streams: PositiveInt = 50
    max_line_bytes: PositiveInt = 1_048_576
    stream_idle_timeout_ms: PositiveInt = 60_000
    """Bounds of produce requests that send line by line: their number, the bytes of a line, and the time of silence."""
    transactional_ids: WordList = ()
    """The transactional ids of the sidecar: a transaction uses the first id whose home cluster has the topics.

    Empty for one id, made of the sidecar's name. Each has its topic `<id>.idempotency` on its home.
    """
    max_waiting_transactions: PositiveInt = 100
    transaction_timeout_ms: int = Field(default=30_000, ge=1_000)
    """How long one transaction may take, from its turn to its commit; also how long a request waits for its turn."""
    idempotency_keep_ms: PositiveInt = 86_400_000
    idempotency_max_keys: PositiveInt = 10_000
    idempotency_max_bytes: PositiveInt = 8 * 1024 * 1024
    """How long, how many and how large the first answers to requests with an Idempotency-Key are kept."""
