"""Which topics are audited, and the function that takes the audited batches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from services.gateway.requests.topic_patterns import TopicPatterns


class AuditedBatch(NamedTuple):
    """Records that a client has written to a partition, or would have. Plain data, for another process."""

    cluster: str
    topic: str
    partition: int
    base_offset: int
    """The offset of the first record; -1 if no broker reported an offset."""
    failure: str
    """Why the broker refused the records; empty if it stored them."""
    records: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ClientAudit:
    """The audit of all clients of a gateway."""

    topics: TopicPatterns
    take: Callable[[list[AuditedBatch]], None]
    """Returns at once."""
