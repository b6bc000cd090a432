"""Calls without an answer about the records: the failure, and the party that may be to blame."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum


class Blame(Enum):
    """Whose fault a failed call can be."""

    BACKEND = "backend"
    """The backend is away or busy; no record is at fault."""
    UNCLEAR = "unclear"
    """A record that breaks the backend has this effect, and so has a backend that is not well."""
    RECORDS = "records"
    """The backend has read the records and refuses them."""


class CallFailedError(Exception):
    """A failed call. The text says what happened, and never holds a secret."""

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
        """Seconds of the pause that the backend asks for; None if it asks for none."""
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
"""The exceptions to the rule of `blame_for`: 4xx blames the records, 5xx is unclear, all others blame the backend."""


def blame_for(status: int) -> Blame:
    """The party to blame for a status that is no success."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status < 400:
        return Blame.BACKEND
    return Blame.RECORDS if status < 500 else Blame.UNCLEAR


def retry_after(text: str, now: float) -> float | None:
    """Seconds, from either form of the header (a number or a date); None for any other text. `now` since the epoch."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # OverflowError: an invalid time zone
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max((then - datetime.fromtimestamp(now, UTC)).total_seconds(), 0.0)
