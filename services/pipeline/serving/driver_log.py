"""What a driver writes to standard error: passed on with the job's name, and its last words for who asks why it died.

Secrets of its order are taken out first: we write nothing of the kind, but a library may show what it was given.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

import structlog

SHORTEST_SECRET = 4
"""Characters; what is shorter stands everywhere."""
LONGEST_WORD = 500
"""Characters of a line that becomes a reason."""
HIDDEN = "***"
COMPLAINT = "Error: "
"""What commands begin their last line with when they fail."""
_SECRET_MARKS = ("password", "secret", "jaas", "token", "credential", ".pem", "ssl.key", "sasl.username")
_OURS = frozenset({"service", "level", "timestamp", "event"})
"""Fields that the line has anyway in which it is passed on."""
_RENAMED = {"logger": "logged_by", "exception": "trace", "job": "of_job"}
"""Those that would be overwritten."""

log = structlog.get_logger(__name__)


def secrets_in(clusters: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    """Values of properties that look like a secret."""
    return frozenset(
        value
        for properties in clusters.values()
        for name, value in properties.items()
        if any(mark in name for mark in _SECRET_MARKS) and len(value) >= SHORTEST_SECRET
    )


class DriverLog:
    """Lines of one driver."""

    def __init__(self, job: str, secrets: Iterable[str] = ()) -> None:
        self._job = job
        self._secrets = sorted(secrets, key=len, reverse=True)  # one may be a part of another
        self._last_line = ""
        self._complaint = ""

    @property
    def last_word(self) -> str:
        """The last error that it told of; where it told of none, its last line. Empty while it has said nothing."""
        return self._complaint or self._last_line

    def take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        if not text.strip():
            return
        fields = _fields(text)
        if fields is None:
            log.info("driver says", job=self._job, line=text)
            if text.startswith(COMPLAINT):
                self._complaint = text.removeprefix(COMPLAINT)[:LONGEST_WORD]
            elif not text.startswith((" ", "\t")):  # as lines of a trace do
                self._last_line = text[:LONGEST_WORD]
            return
        level = logging.getLevelNamesMapping().get(str(fields.get("level", "")).upper(), logging.INFO)
        said = {_RENAMED.get(name, name): value for name, value in fields.items() if name not in _OURS}
        log.log(level, str(fields["event"]), job=self._job, **said)
        if level >= logging.ERROR:
            self._complaint = str(fields["event"])[:LONGEST_WORD]


def _fields(text: str) -> dict[str, object] | None:
    """A line as our services log; None for any other."""
    if not text.startswith("{"):
        return None
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and "event" in fields else None
