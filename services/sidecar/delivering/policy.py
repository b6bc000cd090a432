"""The policy of a delivery: attempts, pauses, and the end of records that fail too often."""

from dataclasses import dataclass
from enum import Enum


class WhenExhausted(Enum):
    """The end of a record that has used all its attempts, or that the backend gives up."""

    DEAD_LETTER = "dead_letter"
    RETRY = "retry"
    """The record is tried for ever, and all records behind it wait.

    For users without dead letters who must lose nothing.
    """
    DROP = "drop"
    """The record is given up, which is recorded."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """The policy of one deliverer. Times in seconds."""

    max_retries: int = 3
    """How often a record is tried again after it failed."""
    retry_delay: float = 1.0
    max_retry_delay: float = 60.0
    """Pauses are random, up to a bound that doubles with each failure in a row, from the first of these on."""
    max_retry_after: float = 300.0
    """The bound of a backend's Retry-After; a longer one is cut to this."""
    rollback_threshold: int = 30
    """Percent.

    If more of a call's records are not processed, the call is repeated; 0: if any, 100: never. Otherwise the failed
    records are given up at once.
    """
    when_exhausted: WhenExhausted = WhenExhausted.DEAD_LETTER
    max_record_bytes: int | None = None
    """Key and value of a record that is given to the backend; a larger one is given up at once."""
    isolate_after: int = 2
    """How often a call of several records fails as a whole before it is split to find the one at fault."""
