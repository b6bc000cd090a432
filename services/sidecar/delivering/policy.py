"""What a delivery may cost, and how it ends: attempts, pauses, what becomes of records that fail too often."""

from dataclasses import dataclass
from enum import Enum


class WhenExhausted(Enum):
    """What becomes of a record that failed as often as it may, or that the backend gives up."""

    DEAD_LETTER = "dead_letter"
    RETRY = "retry"
    """It is tried for ever, and all behind it wait. For those who have no dead letters and want to lose nothing."""
    DROP = "drop"
    """It is given up, which is recorded."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Of one who delivers. Times in seconds."""

    max_retries: int = 3
    """How often a record is tried again after it failed."""
    retry_delay: float = 1.0
    max_retry_delay: float = 60.0
    """Pauses are random, up to a bound that doubles with each failure in a row, from the first of these on."""
    max_retry_after: float = 300.0
    """What is believed of a backend's Retry-After."""
    rollback_threshold: int = 30
    """Percent. If more of a call's records are not processed, the call is repeated; 0: if any, 100: never. Otherwise
    those that failed are given up at once."""
    when_exhausted: WhenExhausted = WhenExhausted.DEAD_LETTER
    max_record_bytes: int | None = None
    """Key and value of a record that is given to the backend; a larger one is given up at once."""
    isolate_after: int = 2
    """How often a call of several records fails as a whole before it is split to find the one at fault."""
