"""What a driver writes to standard error: passed on with the job's name and without secrets, and its last words for who
asks why it died.
"""

from __future__ import annotations

import json
import logging

import structlog

from services.pipeline.serving.hiding import Hiding

LONGEST_WORD = 500
"""Characters of a line that becomes a reason."""
COMPLAINT = "Error: "
"""What commands begin their last line with when they fail."""
_OURS = frozenset({"service", "level", "timestamp", "event"})
"""Fields that the line has anyway in which it is passed on."""
_RENAMED = {"logger": "logged_by", "exception": "trace", "job": "of_job"}
"""Those that would be overwritten."""

log = structlog.get_logger(__name__)


class DriverLog:
    """Lines of one driver."""

    def __init__(self, job: str, hiding: Hiding) -> None:
        self._job = job
        self._hiding = hiding
        self._last_line = ""
        self._complaint = ""

    @property
    def last_word(self) -> str:
        """The last error that it told of; where it told of none, its last line. Empty while it has said nothing."""
        return self._complaint or self._last_line

    def take(self, line: bytes) -> None:
        text = self._hiding.hide(line.decode("utf-8", "replace").rstrip())
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
