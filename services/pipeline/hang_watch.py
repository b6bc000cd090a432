"""Detects whether a streaming query makes progress: to the thread that waits for it, a stuck batch looks alive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVERY_S = 10.0
"""Seconds between two reports of a job."""


class HangWatch:
    """Watches one query: its batches, and the finished tasks of its stages."""

    def __init__(self, session: SparkSession) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._seen: object = None
        self._seen_at = time.monotonic()
        self._asked_at = float("-inf")

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._asked_at >= EVERY_S

    def stuck_s(self, query: StreamingQuery | None) -> float:
        """Seconds that the query has worked without progress; 0 while it waits, or if there is no query."""
        now = self._asked_at = time.monotonic()
        if query is None or not query.isActive or not query.status["isTriggerActive"]:
            self._seen, self._seen_at = None, now
            return 0.0
        progress = self._progress(query)
        if progress != self._seen:
            self._seen, self._seen_at = progress, now
        return now - self._seen_at

    def _progress(self, query: StreamingQuery) -> object:
        last = query.lastProgress
        stages = [
            (number, stage.numCompletedTasks)
            for job in self._tracker.getJobIdsForGroup(str(query.runId))
            if (about := self._tracker.getJobInfo(job)) is not None
            for number in about.stageIds
            if (stage := self._tracker.getStageInfo(number)) is not None
        ]
        return str(query.runId), last["batchId"] if last else None, query.status["message"], sorted(stages)
