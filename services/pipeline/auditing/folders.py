"""The folders of the job `audit`: one for each cluster, with its days and its checkpoint, in any store of Hadoop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from services.pipeline.auditing.day_files import DECIDED, staged, staged_file
from services.pipeline.kafka.positions import Position, StreamError
from services.pipeline.storage.hadoop import HadoopFolder
from services.pipeline.storage.layout import CHECKPOINT, STAGE, batch_folder
from services.pipeline.storage.ownership import OwnedFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = "day="

log = structlog.get_logger(__name__)


class FolderError(StreamError):
    """The events can't be written to the folder."""


class ClusterFolder:
    """The folder of one cluster, for one run. Each change may raise FencedError (storage/ownership.py)."""

    def __init__(self, session: SparkSession, folder: str, cluster: str) -> None:
        self._files = OwnedFolder(session, f"{folder.rstrip('/')}/cluster={quote(cluster, safe='')}")

    @property
    def path(self) -> str:
        return self._files.root

    @property
    def checkpoint(self) -> str:
        return f"{self.path}/{CHECKPOINT}"

    def take(self) -> None:
        """Makes this run the one that writes the folder.

        FencedError if another run has taken the folder from this one. FolderError if the folder has days but no
        checkpoint: a new batch 0 would replace the existing batch 0.
        """
        self._files.take()
        if self._files.matching(f"{DAY}*") and not self._files.exists(CHECKPOINT):
            raise FolderError(
                f"{self.path} holds days but no {CHECKPOINT}: what was read for it is unknown; "
                f"bring {CHECKPOINT} back, or move the days elsewhere"
            )

    def check(self) -> None:
        """FencedError if another run has taken the folder."""
        self._files.check()

    def clear_stage(self) -> None:
        """Deletes the staged files of attempts that were cut off, and of earlier batches."""
        for found in self._files.matching(f"{STAGE}/batch=*"):
            self._files.delete(found)

    def is_decided(self, batch: int) -> bool:
        """Whether an earlier attempt has completed all files of the same batch, and all of them are still there."""
        decided = f"{staged(batch)}/{DECIDED}"
        if not self._files.exists(decided):
            return False
        said = json.loads(self._files.read(decided))
        return said["plan"] == self._plan(batch) and not self._gone(batch, said["files"])

    def decide(self, batch: int, named: Sequence[tuple[str, str]]) -> None:
        """Declares these staged files, by day and name, to be the whole batch (day_files.py)."""
        for found in self._files.matching(f"{DAY}*/batch={batch}/*"):  # of another plan for a batch of this number
            self._files.delete(found)
        self._files.write(f"{staged(batch)}/{DECIDED}", json.dumps({"plan": self._plan(batch), "files": named}))

    def publish(self, batch: int) -> None:
        """Moves the files that are not moved yet. FolderError if one is gone: the next attempt writes all again."""
        named = json.loads(self._files.read(f"{staged(batch)}/{DECIDED}"))["files"]
        if gone := self._gone(batch, named):
            raise FolderError(f"{self.path} has lost {len(gone)} files of batch {batch}, which are written again")
        for folder in sorted({batch_folder(day, batch) for day, _ in named}):
            self._files.make(folder)
        waiting = self._waiting(batch)
        for day, name in named:
            if (file := staged_file(batch, day, name)) in waiting:
                self._files.move(file, f"{batch_folder(day, batch)}/{name}")
        self._files.check()  # before Spark commits: a new owner runs the batch again

    def _gone(self, batch: int, named: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The files of a decided batch that are neither staged nor moved."""
        waiting = self._waiting(batch)
        return [
            (day, name)
            for day, name in named
            if staged_file(batch, day, name) not in waiting
            and not self._files.exists(f"{batch_folder(day, batch)}/{name}")
        ]

    def _waiting(self, batch: int) -> set[str]:
        """The files of a batch that are not moved yet."""
        return set(self._files.matching(f"{staged(batch)}/{DAY}*/*"))

    def _plan(self, batch: int) -> str:
        """Spark's offset log of the batch."""
        noted = f"{CHECKPOINT}/offsets/{batch}"
        return self._files.read(noted) if self._files.exists(noted) else ""

    def position(self) -> Position:
        """The position of the stream, from the last batch that Spark has committed.

        FencedError if another run has taken the folder from this one.
        """
        if self._files.is_taken:
            self._files.check()
        return self._files.committed_position()


def delete_days_before(session: SparkSession, folder: str, first: date) -> None:
    """Deletes the days before `first` of all clusters; any driver may do so, because nobody writes such days again."""
    files = HadoopFolder(session, folder)
    for found in files.matching(f"cluster=*/{DAY}*"):
        if found.rpartition(DAY)[2] < first.isoformat():
            files.delete(found)
            log.info("old day deleted", folder=f"{files.root}/{found}")
