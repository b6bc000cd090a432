"""A topic of a running rehearsal, and an answered produce in its share."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A topic of a running rehearsal."""

    topic: str
    rehearsal_id: str
    candidate: str
    share: int
    """Batches in ten thousand."""
    until_ms: int
    """Since 1970."""


@dataclass(frozen=True, slots=True)
class Produced:
    """The batch of one partition in one request, with its answer."""

    rehearsed: Rehearsed
    cluster: str
    """The present cluster, which answered."""
    partition: int
    error_code: int
    seconds: float
    size: int
    acks: int
    timeout_ms: int
    client_id: str | None
    session: int
    records: Buffer
    """Good until the request's plan ends."""
