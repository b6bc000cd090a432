"""The layout of an archive's folder, and the plans of its compactions. No I/O.

    `day=2026-11-21/batch=17/part-….parquet`             records.
    `_compaction/day=2026-11-21/batch=17/plan.json`      which batches of the day became batch 17, and its content.
    `_compaction/day=2026-11-21/batch=17/staged/…`       its files, until they are moved to the records.
    `_staged/…`                                          files of a batch, until the driver moves them to its days.
    `_checkpoint/`                                       the position of the job, written by Spark.

Readers of Parquet skip names that begin with an underscore. compaction.py describes the order of the changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.pipeline.storage.layout import batch_folder

COMPACTION = "_compaction"
PLAN = "plan.json"
STAGED = "staged"
_BATCH = re.compile(r"(?:^|/)day=(\d{4}-\d\d-\d\d)/batch=(\d+)(?:/|$)")


@dataclass(frozen=True, slots=True, order=True)
class BatchFolder:
    """The part of a batch that is from one day (UTC, as YYYY-MM-DD)."""

    day: str
    batch: int

    def __str__(self) -> str:
        return batch_folder(self.day, self.batch)

    @classmethod
    def of(cls, path: str) -> BatchFolder | None:
        """The batch folder in `path`, or None: records without a time have no day and are never compacted."""
        found = _BATCH.search(path)
        return cls(found[1], int(found[2])) if found else None

    @property
    def compaction(self) -> str:
        """The folder with the plan of the compaction that made this batch."""
        return f"{COMPACTION}/{self}"

    @property
    def plan(self) -> str:
        return f"{self.compaction}/{PLAN}"

    @property
    def staged(self) -> str:
        return f"{self.compaction}/{STAGED}"


@dataclass(frozen=True, slots=True)
class Holding:
    """The records of one partition in a file."""

    topic: str
    partition: int
    first: int
    last: int
    records: int
    earliest_ms: int | None
    latest_ms: int | None
    """None if no record has a timestamp."""
    generation: int = 0
    """Generation of the topic: see kafka/positions.py."""

    def overlaps(self, start: int, end: int) -> bool:
        return self.first < end and start <= self.last


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file with archived records."""

    paths: tuple[str, ...]
    """The possible paths of the file, below the archive's folder.

    A compaction moves the file from the first to the last.
    """
    holdings: tuple[Holding, ...]

    def only(self, topics: Collection[str]) -> ArchivedFile | None:
        """The file with its content of these topics; None if it has none."""
        kept = tuple(each for each in self.holdings if each.topic in topics)
        return ArchivedFile(self.paths, kept) if kept else None


@dataclass(frozen=True, slots=True)
class Plan:
    """How batches of a day become one. Once a plan is written, it is carried out, even if its process is killed."""

    into: BatchFolder
    """The last of the batches; the compacted batch takes its number."""
    batches: tuple[int, ...]
    files: Mapping[str, tuple[Holding, ...]]
    """The content of each new file, by file name."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "day": self.into.day,
                "into": self.into.batch,
                "batches": self.batches,
                "files": {name: [_to_row(each) for each in held] for name, held in self.files.items()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        said = json.loads(text)
        return cls(
            BatchFolder(said["day"], said["into"]),
            tuple(said["batches"]),
            {name: tuple(Holding(*row) for row in rows) for name, rows in said["files"].items()},
        )

    @property
    def replaced(self) -> list[BatchFolder]:
        return [BatchFolder(self.into.day, batch) for batch in self.batches]

    def archived_files(self) -> Iterator[ArchivedFile]:
        for name, held in self.files.items():
            yield ArchivedFile((f"{self.into.staged}/{name}", f"{self.into}/{name}"), held)


def _to_row(held: Holding) -> list[Any]:
    return [
        held.topic,
        held.partition,
        held.first,
        held.last,
        held.records,
        held.earliest_ms,
        held.latest_ms,
        held.generation,
    ]


def latest_plans(paths: Collection[str]) -> dict[str, BatchFolder]:
    """The last plan of each day, from the paths of all plans; the last compaction includes the earlier ones."""
    latest: dict[str, BatchFolder] = {}
    for path in paths:
        into = BatchFolder.of(path)
        if into is not None and path.endswith(PLAN):
            latest[into.day] = max(into, latest.get(into.day, into))
    return latest


def records_of(files: Sequence[str], plans: Collection[Plan]) -> tuple[list[str], list[ArchivedFile]]:
    """The `files` that no plan has replaced, and the files that the plans have made."""
    taken_in = {folder for plan in plans for folder in plan.replaced}
    by_themselves = [each for each in files if BatchFolder.of(each) not in taken_in]
    return by_themselves, [each for plan in plans for each in plan.archived_files()]
