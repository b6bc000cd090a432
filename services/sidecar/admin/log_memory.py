"""The last log lines of this process, so that an operator can read them over HTTP. Bounded in lines and in bytes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import orjson
import structlog
from orjson import Fragment

MAX_LINES = 5_000
MAX_BYTES = 4 * 1024 * 1024
LONGEST_LINE = 64 * 1024
"""Bytes; a longer line is kept with only its event, time and level."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log line."""

    time_ms: int
    logger: str
    level: int
    text: bytes
    """The line as JSON, as it is on standard error."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines: of a logger and those below it, from a level up, within milliseconds since the epoch."""

    level: int
    start_ms: int
    end_ms: int
    logger: str = ""
    """Empty for all."""
    offset: int = 0
    limit: int = 100

    def takes(self, line: LogLine) -> bool:
        if line.level < self.level or not self.start_ms <= line.time_ms <= self.end_ms:
            return False
        return not self.logger or line.logger == self.logger or line.logger.startswith(f"{self.logger}.")


@dataclass(frozen=True, slots=True)
class FoundLines:
    """Lines of one logger: how many there are, and those of the page that was asked for."""

    total: int
    logs: list[Fragment]


class LogMemory(logging.Handler):
    """A log handler that keeps its lines. Any thread may log, and any thread may search."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[
                    structlog.contextvars.merge_contextvars,
                    structlog.stdlib.add_log_level,
                    structlog.stdlib.add_logger_name,
                    structlog.processors.TimeStamper(fmt="iso", utc=True),
                ],
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    structlog.processors.JSONRenderer(serializer=_json),
                ],
            )
        )
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record).encode()
        except Exception:  # noqa: BLE001  # a line that cannot be shown must not fail its logger
            self.handleError(record)
            return
        if len(text) > LONGEST_LINE:
            text = orjson.dumps({"event": f"{len(text)} bytes, too long to be kept here", "level": record.levelname})
        line = LogLine(int(record.created * 1000), record.name, record.levelno, text)
        with self._guard:
            self._lines.append(line)
            self._bytes += len(text)
            while len(self._lines) > MAX_LINES or self._bytes > MAX_BYTES:
                self._bytes -= len(self._lines.popleft().text)

    def find(self, query: LogQuery) -> dict[str, FoundLines]:
        """The lines that match the query, by logger, the oldest first."""
        with self._guard:
            lines = list(self._lines)
        by_logger: dict[str, list[LogLine]] = {}
        for line in _taken(lines, query):
            by_logger.setdefault(line.logger, []).append(line)
        page = slice(query.offset, query.offset + query.limit)
        return {
            logger: FoundLines(len(found), [Fragment(line.text) for line in found[page]])
            for logger, found in sorted(by_logger.items())
        }


def _taken(lines: Iterable[LogLine], query: LogQuery) -> Iterable[LogLine]:
    return (line for line in lines if query.takes(line))


def _json(event: object, **_: object) -> str:
    return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
