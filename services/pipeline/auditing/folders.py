"""The folders of the job `audit`: one for each cluster, with its days and its checkpoint, in any store of Hadoop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from services.pipeline.archives.hadoop import HadoopFolder
from services.pipeline.archives.layout import CHECKPOINT, BatchFolder
from services.pipeline.archives.ownership import FolderOwner
from services.pipeline.auditing.day_files import DECIDED, STAGED, staged, staged_file
from services.pipeline.positions import Position, StreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = "day="

log = structlog.get_logger(__name__)


class FolderError(StreamError):
    """The events can't be written to the folder."""


class ClusterFolder:
    """The folder of one cluster."""

    def __init__(self, session: SparkSession, folder: str, cluster: str) -> None:
        self._files = HadoopFolder(session, f"{folder.rstrip('/')}/cluster={quote(cluster, safe='')}")
        self._owner = FolderOwner(self._files)

    @property
    def path(self) -> str:
        return self._files.root

    @property
    def checkpoint(self) -> str:
        return f"{self.path}/{CHECKPOINT}"

    def check(self) -> None:
        """Takes the folder.

        FolderError if the folder has days but no checkpoint: a new batch 0 would replace the existing batch 0.
        """
        self._owner.take()
        if self._files.matching(f"{DAY}*") and not self._files.exists(CHECKPOINT):
            raise FolderError(
                f"{self.path} holds days but no {CHECKPOINT}: what was read for it is unknown; "
                f"bring {CHECKPOINT} back, or move the days elsewhere"
            )

    def clear_stage(self, batch: int) -> None:
        """Deletes the staged files of attempts that were cut off, and of earlier batches."""
        self._owner.check()
        for found in self._files.matching(f"{STAGED}/batch=*"):
            self._files.delete(found)

    def is_decided(self, batch: int) -> bool:
        """Whether an earlier attempt has completed all files of the same batch."""
        decided = f"{staged(batch)}/{DECIDED}"
        return self._files.exists(decided) and json.loads(self._files.read(decided))["plan"] == self._plan(batch)

    def decide(self, batch: int, named: Sequence[tuple[str, str]]) -> None:
        """Declares these staged files, by day and name, to be the whole batch (day_files.py)."""
        for found in self._files.matching(f"{DAY}*/batch={batch}"):  # written before `decided.json` existed
            self._files.delete(found)
        self._files.make(staged(batch))
        self._files.write(f"{staged(batch)}/{DECIDED}", json.dumps({"plan": self._plan(batch), "files": named}))

    def publish(self, batch: int) -> None:
        """Moves the files that are not moved yet."""
        self._owner.check()
        waiting = set(self._files.matching(f"{staged(batch)}/{DAY}*/*"))
        for day, name in json.loads(self._files.read(f"{staged(batch)}/{DECIDED}"))["files"]:
            if (file := staged_file(batch, day, name)) in waiting:
                folder = BatchFolder(day, batch)
                self._files.make(str(folder))
                self._files.move(file, f"{folder}/{name}")
        for found in self._files.matching(f"{staged(batch)}/{DAY}*"):
            self._files.delete(found)

    def _plan(self, batch: int) -> str:
        """Spark's offset log of the batch."""
        noted = f"{CHECKPOINT}/offsets/{batch}"
        return self._files.read(noted) if self._files.exists(noted) else ""

    def position(self) -> Position:
        """The position of the stream, from the last batch that Spark has committed."""
        return self._files.committed_position()


def delete_days_before(session: SparkSession, folder: str, first: date) -> None:
    """Deletes the days before `first` of all clusters."""
    files = HadoopFolder(session, folder)
    for found in files.matching(f"cluster=*/{DAY}*"):
        if found.rpartition(DAY)[2] < first.isoformat():
            files.delete(found)
            log.info("old day deleted", folder=f"{files.root}/{found}")
