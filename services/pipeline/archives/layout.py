"""What stands where in an archive's folder, and what its files say of themselves. No I/O.

    day=2026-11-21/batch=17/part-….parquet               records
    _compaction/day=2026-11-21/batch=17/plan.json        which batches of the day became batch 17, and what is in it
    _compaction/day=2026-11-21/batch=17/staged/…         its files, until they stand among the records
    _checkpoint/                                         where the job stands; Spark's

Readers of Parquet pass by what begins with an underscore. compaction.py says in which order this comes and goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.pipeline.positions import Position, parse

CHECKPOINT = "_checkpoint"
COMPACTION = "_compaction"
PLAN = "plan.json"
STAGED = "staged"
PARQUET = ".parquet"
_BATCH = re.compile(r"(?:^|/)day=(\d{4}-\d\d-\d\d)/batch=(\d+)(?:/|$)")


@dataclass(frozen=True, slots=True, order=True)
class BatchFolder:
    """The part of a batch that is from one day (UTC, as YYYY-MM-DD)."""

    day: str
    batch: int

    def __str__(self) -> str:
        return f"day={self.day}/batch={self.batch}"

    @classmethod
    def of(cls, path: str) -> BatchFolder | None:
        """The one that `path` leads to, or through; records without a time have no day and stay as they are."""
        found = _BATCH.search(path)
        return cls(found[1], int(found[2])) if found else None

    @property
    def compaction(self) -> str:
        """Where it is told how this one came to be."""
        return f"{COMPACTION}/{self}"

    @property
    def plan(self) -> str:
        return f"{self.compaction}/{PLAN}"

    @property
    def staged(self) -> str:
        return f"{self.compaction}/{STAGED}"


@dataclass(frozen=True, slots=True)
class Holding:
    """What a file has of one partition."""

    topic: str
    partition: int
    first: int
    last: int
    records: int
    earliest_ms: int | None
    latest_ms: int | None
    """None where no record has a time."""
    generation: int = 0
    """Of the topic: see positions.py."""

    def overlaps(self, start: int, end: int) -> bool:
        return self.first < end and start <= self.last


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of records."""

    paths: tuple[str, ...]
    """Where it may be, below the archive's folder: a file that is about to be moved goes from the first to the last."""
    holdings: tuple[Holding, ...]

    def only(self, topics: Collection[str]) -> ArchivedFile | None:
        """What it has of these; None where that is nothing."""
        kept = tuple(each for each in self.holdings if each.topic in topics)
        return ArchivedFile(self.paths, kept) if kept else None


@dataclass(frozen=True, slots=True)
class Plan:
    """How batches of a day become one. Once it is written it will be so, whoever is killed meanwhile."""

    into: BatchFolder
    """The last of the batches, whose number is taken over."""
    batches: tuple[int, ...]
    files: Mapping[str, tuple[Holding, ...]]
    """By name."""

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
    """Of each day the compaction that counts, by the paths of all plans: the last one; it has taken in those before."""
    latest: dict[str, BatchFolder] = {}
    for path in paths:
        into = BatchFolder.of(path)
        if into is not None and path.endswith(PLAN):
            latest[into.day] = max(into, latest.get(into.day, into))
    return latest


def records_of(files: Sequence[str], plans: Collection[Plan]) -> tuple[list[str], list[ArchivedFile]]:
    """Which of the listed `files` count by themselves, and those that count because a plan says so."""
    taken_in = {folder for plan in plans for folder in plan.replaced}
    by_themselves = [each for each in files if BatchFolder.of(each) not in taken_in]
    return by_themselves, [each for plan in plans for each in plan.archived_files()]


def position_of(offset_log: str) -> Position:
    """Where the job stood after a batch, by Spark's note: a version, a line of its own, the source's."""
    _version, _metadata, document = offset_log.split("\n", 2)
    return parse(json.loads(document))
