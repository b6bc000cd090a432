"""Compacts finished days beside the query that archives, one day at a time, at a set interval."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import structlog
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from services.pipeline.archives.compaction import CompactionRules, compact
from services.pipeline.storage.hadoop import HadoopFolder

JOB_GROUP = "kafka-mesh-compaction"
STOP_POLL_S = 0.5

log = structlog.get_logger(__name__)


class BackgroundCompaction:
    """A context manager; its exit cancels a running compaction, which a later run repeats from its start."""

    def __init__(self, session: SparkSession, files: HadoopFolder, rules: CompactionRules, every: timedelta) -> None:
        self._session = session
        self._files = files
        self._rules = rules
        self._every_s = every.total_seconds()
        self._due = time.monotonic()
        self._stopping = threading.Event()
        self._thread: InheritableThread | None = None
        self.days = 0
        """Number of days that were compacted."""

    def __enter__(self) -> BackgroundCompaction:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        while self._thread is not None and self._thread.is_alive():
            self._session.sparkContext.cancelJobGroup(JOB_GROUP)
            self._thread.join(STOP_POLL_S)

    def turn(self) -> None:
        """Starts a compaction if one is due, unless the last compaction still runs."""
        if time.monotonic() < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = time.monotonic() + self._every_s
        self._thread = InheritableThread(target=self._compact, name="compaction", session=self._session)
        self._thread.start()

    def _compact(self) -> None:
        self._session.sparkContext.setJobGroup(JOB_GROUP, "compaction", interruptOnCancel=True)
        try:
            self.days += compact(self._session, self._files, self._rules, stopping=self._stopping)
        except Exception:
            # archiving is more urgent: retention does not wait
            if not self._stopping.is_set():
                log.exception("compaction failed; it is tried again", in_s=self._every_s)
