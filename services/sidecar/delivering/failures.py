"""Calls that brought no answer about the records: what happened, and who may be to blame for it."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum


class Blame(Enum):
    """Whose fault a failed call can be."""

    BACKEND = "backend"
    """It is away or busy; no record has to do with it."""
    UNCLEAR = "unclear"
    """A record that it stumbles over looks like that, and so does a backend that is not well."""
    RECORDS = "records"
    """It looked at what it got, and refuses that."""


class CallFailedError(Exception):
    """Says what happened, never a secret."""

    def __init__(
        self, reason: str, blame: Blame, *, outcome: str, is_too_large: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.blame = blame
        self.outcome = outcome
        """In a word or a number, for metrics."""
        self.is_too_large = is_too_large
        self.retry_after = retry_after
        """Seconds that the backend wants to be left in peace; None if it does not say."""
        self.stacktrace = reason


TOO_MANY_REQUESTS, UNAVAILABLE, TOO_LARGE = 429, 503, 413
_BY_STATUS = {
    401: Blame.BACKEND,
    403: Blame.UNCLEAR,
    404: Blame.UNCLEAR,
    405: Blame.BACKEND,
    407: Blame.BACKEND,
    408: Blame.UNCLEAR,
    421: Blame.BACKEND,
    425: Blame.BACKEND,
    TOO_MANY_REQUESTS: Blame.BACKEND,
    UNAVAILABLE: Blame.BACKEND,
}
"""What differs from: 4xx is what the backend got, 5xx can be either, anything else is a backend set up wrong."""


def blame_for(status: int) -> Blame:
    """Who may be to blame for a status that is no success."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status < 400:
        return Blame.BACKEND
    return Blame.RECORDS if status < 500 else Blame.UNCLEAR


def retry_after(text: str, now: float) -> float | None:
    """Seconds, from either form of the header (a number or a date); None for what is neither. `now` since the epoch."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the latter: a zone that is no zone
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max((then - datetime.fromtimestamp(now, UTC)).total_seconds(), 0.0)
