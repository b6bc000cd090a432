"""The folders of the job `audit`: one for each cluster, with its days and its checkpoint, wherever Hadoop reaches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from services.pipeline.archives.hadoop import HadoopFolder
from services.pipeline.archives.layout import CHECKPOINT, BatchFolder, position_of
from services.pipeline.auditing.day_files import staged, staged_file
from services.pipeline.positions import Position, StreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = "day="

log = structlog.get_logger(__name__)


class FolderError(StreamError):
    """The events can't be written there."""


class ClusterFolder:
    """Of one cluster."""

    def __init__(self, session: SparkSession, folder: str, cluster: str) -> None:
        self._files = HadoopFolder(session, f"{folder.rstrip('/')}/cluster={quote(cluster, safe='')}")

    @property
    def path(self) -> str:
        return self._files.root

    @property
    def checkpoint(self) -> str:
        return f"{self.path}/{CHECKPOINT}"

    def check(self) -> None:
        """FolderError when there are days and no checkpoint: batch 0 would replace batch 0."""
        if self._files.matching(f"{DAY}*") and not self._files.exists(CHECKPOINT):
            raise FolderError(
                f"{self.path} holds days but no {CHECKPOINT}: what was read for it is unknown; "
                f"bring {CHECKPOINT} back, or move the days elsewhere"
            )

    def clear_stage(self, batch: int) -> None:
        """Of what an attempt at this batch has left that was cut off."""
        self._files.delete(staged(batch))

    def replace(self, batch: int, named: Iterable[tuple[str, str]]) -> None:
        """The batch is what stands in these staged files, by day and name, and nothing else (day_files.py)."""
        by_day = defaultdict[str, list[str]](list)
        for day, name in named:
            by_day[day].append(name)
        for found in self._files.matching(f"{DAY}*/batch={batch}"):
            self._files.delete(found)
        for day, names in sorted(by_day.items()):
            folder = BatchFolder(day, batch)
            self._files.make(str(folder))
            for name in names:
                self._files.move(staged_file(batch, day, name), f"{folder}/{name}")
        self.clear_stage(batch)

    def position(self) -> Position:
        """Where the stream stands, by the last batch that is noted as done."""
        commits = (path.rpartition("/")[2] for path in self._files.matching(f"{CHECKPOINT}/commits/*"))
        done = [int(name) for name in commits if name.isdecimal()]
        return position_of(self._files.read(f"{CHECKPOINT}/offsets/{max(done)}")) if done else {}


def delete_days_before(session: SparkSession, folder: str, first: date) -> None:
    """Of all clusters."""
    files = HadoopFolder(session, folder)
    for found in files.matching(f"cluster=*/{DAY}*"):
        if found.rpartition(DAY)[2] < first.isoformat():
            files.delete(found)
            log.info("old day deleted", folder=f"{files.root}/{found}")
