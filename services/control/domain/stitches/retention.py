"""Until when a cluster keeps the records of a part to which nobody writes any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

RETENTION: Final = ("retention.ms",)
SLACK: Final = timedelta(minutes=10)
"""A broker looks for old records every 5 minutes (log.retention.check.interval.ms), and deletes files soon after."""
LONGEST: Final = timedelta(days=36_500)
"""A longer retention is as good as none."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The end of a part as a sentence, and its latest time; None: it is not known, or never."""

    sentence: str
    latest: datetime | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str], ended: datetime, *, is_left: bool) -> Retention:
        """`ended`: when the last record was written; `is_left`: whether the cluster has records of the part."""
        if not is_left:
            return cls("nothing is left there")
        said = settings.get("retention.ms", "")
        if not said.lstrip("-").isdigit():
            return cls("not known: the cluster does not tell retention.ms")
        kept = timedelta(milliseconds=min(int(said), LONGEST // timedelta(milliseconds=1)))
        if kept < timedelta(0) or kept >= LONGEST:
            return cls(f"never: retention.ms is {said}")
        latest = ended + kept + SLACK
        return cls(f"at the latest {latest:%Y-%m-%d %H:%M} UTC", latest)
