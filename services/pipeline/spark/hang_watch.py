"""Detects whether a batch makes progress: to the thread that waits for it, a stuck batch looks alive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVERY_S = 10.0
"""Seconds between two reports of a job."""


class HangWatch:
    """Watches one query (its batches, and the finished tasks of its stages), or one group of jobs after another."""

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
        if query is None or not query.isActive or not query.status["isTriggerActive"]:
            return self._since(None)
        group, last = str(query.runId), query.lastProgress
        return self._since((group, last["batchId"] if last else None, query.status["message"], self._stages(group)))

    def stuck_s_of(self, group: str) -> float:
        """Seconds without progress of the running job group; a group that was not asked about before begins at 0."""
        return self._since((group, self._stages(group)))

    def _since(self, progress: object) -> float:
        """Seconds since the progress was another one; None stands for no work."""
        now = self._asked_at = time.monotonic()
        if progress is None or progress != self._seen:
            self._seen, self._seen_at = progress, now
        return now - self._seen_at

    def _stages(self, group: str) -> list[tuple[int, int]]:
        """The stages of the group's jobs, with the number of their finished tasks."""
        return sorted(
            (number, stage.numCompletedTasks)
            for job in self._tracker.getJobIdsForGroup(group)
            if (about := self._tracker.getJobInfo(job)) is not None
            for number in about.stageIds
            if (stage := self._tracker.getStageInfo(number)) is not None
        )
