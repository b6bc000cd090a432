"""The standard error of a driver: passed on with the job's name and without secrets.

The last error of a driver is kept as the reason of its end.
"""

from __future__ import annotations

import json
import logging

import structlog

from services.pipeline.serving.redaction import Hiding

LONGEST_WORD = 500
"""Characters of a line that is used as a reason."""
COMPLAINT = "Error: "
"""The beginning of a failed command's last line."""
_OURS = frozenset({"service", "level", "timestamp", "event"})
"""Fields that each log line of this process has anyway."""
_RENAMED = {"logger": "logged_by", "exception": "trace", "job": "of_job"}
"""Fields with new names, because this process would overwrite them."""

log = structlog.get_logger(__name__)


class DriverLog:
    """The log lines of one driver."""

    def __init__(self, job: str, hiding: Hiding) -> None:
        self._job = job
        self._hiding = hiding
        self._last_line = ""
        self._complaint = ""

    @property
    def last_word(self) -> str:
        """The driver's last error, or else its last line. Empty if the driver has written nothing."""
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
            elif not text.startswith((" ", "\t")):  # lines of a traceback begin so
                self._last_line = text[:LONGEST_WORD]
            return
        level = logging.getLevelNamesMapping().get(str(fields.get("level", "")).upper(), logging.INFO)
        said = {_RENAMED.get(name, name): value for name, value in fields.items() if name not in _OURS}
        log.log(level, str(fields["event"]), job=self._job, **said)
        if level >= logging.ERROR:
            self._complaint = str(fields["event"])[:LONGEST_WORD]


def _fields(text: str) -> dict[str, object] | None:
    """The fields of a log line of our services; None for any other line."""
    if not text.startswith("{"):
        return None
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and "event" in fields else None
