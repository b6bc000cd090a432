"""What an archive holds, found by listing it: no record is read, and a compaction that goes on meanwhile is no matter.

Plans are written before a file is touched and stay (compaction.py). So when the same plans were there before and after
the files were listed, what the listing shows is either what no plan speaks of, or is replaced by what a plan says; a
file that is deleted after that is missed by who opens it, and then it is listed anew.

What compacted files hold stands in the plans. That of others is in the statistics of their footers; only where
partitions meet in one row group, its four small columns are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow
import pyarrow.parquet

from services.pipeline.archives.layout import (
    CHECKPOINT,
    COMPACTION,
    PARQUET,
    STAGED,
    ArchivedFile,
    BatchFolder,
    Holding,
    Plan,
    latest_plans,
    position_of,
    records_of,
)
from services.pipeline.archives.stores import OpenStore, Store, in_parallel
from services.pipeline.positions import Position, StreamError, UnreachableError

SCANS = 20  # of a folder that is compacted or written faster than it can be listed
WHAT = ["topic", "partition", "offset", "timestamp"]
GENERATION = "generation"
"""A column of files since there are generations; what earlier files hold is of generation 0."""
MICROSECONDS_OF_A_MILLISECOND = 1_000


class ArchiveReadError(StreamError):
    """The archive can't be read; the message says where and why."""


@dataclass(frozen=True)
class Catalogue:
    """What an archive holds at a moment."""

    files: tuple[ArchivedFile, ...]
    position: Position = field(default_factory=dict)
    """Up to where all is archived, and the topics' ids. Files may hold more, of a batch that is being written."""

    def only(self, topics: Collection[str]) -> Catalogue:
        kept = tuple(each for file in self.files if (each := file.only(topics)) is not None)
        return Catalogue(kept, {topic: each for topic, each in self.position.items() if topic in topics})

    def newest_generations(self) -> Catalogue:
        """Of each topic the generation that the archive is at: offsets of earlier ones mean other records."""
        newest: dict[str, int] = {topic: each.generation for topic, each in self.position.items()}
        for held in self.holdings():
            newest[held.topic] = max(held.generation, newest.get(held.topic, 0))
        kept = (
            ArchivedFile(file.paths, holdings)
            for file in self.files
            if (holdings := tuple(each for each in file.holdings if each.generation == newest[each.topic]))
        )
        return Catalogue(tuple(kept), self.position)

    def holdings(self) -> Iterator[Holding]:
        for file in self.files:
            yield from file.holdings

    def end(self, topic: str, partition: int) -> int:
        """Up to where all is archived; where that is not known, what is there is all."""
        known = self.position.get(topic)
        if known is not None:
            return known.next.get(partition, 0)
        return max((held.last + 1 for _file, held in self._by_place.get((topic, partition), ())), default=0)

    def covering(self, topic: str, partition: int, start: int, end: int) -> list[tuple[ArchivedFile, Holding]]:
        """Files with offsets from `start` up to `end`, by their first ones; they overlap where days do."""
        return [item for item in self._by_place.get((topic, partition), ()) if item[1].overlaps(start, end)]

    @cached_property
    def _by_place(self) -> dict[tuple[str, int], list[tuple[ArchivedFile, Holding]]]:
        found: dict[tuple[str, int], list[tuple[ArchivedFile, Holding]]] = {}
        for file in self.files:
            for each in file.holdings:
                found.setdefault((each.topic, each.partition), []).append((file, each))
        return {place: sorted(items, key=lambda item: item[1].first) for place, items in found.items()}


def scan(store: Store) -> Catalogue:
    """Holds nothing where nothing has been archived yet. ArchiveReadError when there is no rest to list it in."""
    opened = store.open()
    for _ in range(SCANS):
        try:
            if (found := _scan_once(opened)) is not None:
                return found
        except FileNotFoundError:  # what was listed has been compacted
            continue
        except OSError as error:
            raise UnreachableError(f"the archive {store.folder} can't be read: {error}") from error
    raise ArchiveReadError(f"{store.folder} changes faster than it can be listed; try again when nothing is compacted")


def _scan_once(store: OpenStore) -> Catalogue | None:
    """None when it was compacted meanwhile."""
    days = [store.below(each) for each in store.infos(recursive=False) if "day=" in each.base_name]
    position = _position(store)  # before the files: what it promises is there
    compaction = store.names(COMPACTION)
    before = latest_plans(compaction)
    # a day that somebody has removed is gone; one that is between its small and its large files has those staged
    there = {
        *days,
        *(f"day={batch.day}" for path in compaction if (batch := BatchFolder.of(path)) and f"/{STAGED}/" in path),
    }
    counting = [into.plan for into in before.values() if f"day={into.day}" in there]
    with in_parallel() as pool:
        plans = [Plan.from_json(text) for text in pool.map(store.text, counting)]
        listed = [name for names in pool.map(store.names, days) for name in names if name.endswith(PARQUET)]
        if latest_plans(store.names(COMPACTION)) != before:
            return None
        by_themselves, planned = records_of(listed, plans)
        found = list(pool.map(lambda path: ArchivedFile((path,), read_holdings(store, path)), by_themselves))
    return Catalogue((*found, *planned), position).newest_generations()


def _position(store: OpenStore) -> Position:
    """Empty where data were copied without their checkpoint."""
    done = [int(name) for each in store.names(f"{CHECKPOINT}/commits") if (name := each.rpartition("/")[2]).isdecimal()]
    return position_of(store.text(f"{CHECKPOINT}/offsets/{max(done)}")) if done else {}


def read_holdings(store: OpenStore, path: str) -> tuple[Holding, ...]:
    """What one file has, by its footer."""
    with store.open(path) as file, pyarrow.parquet.ParquetFile(file, pre_buffer=False) as parquet:
        found: dict[tuple[str, int, int], Holding] = {}
        for number in range(parquet.num_row_groups):
            for each in _holdings_of(parquet, number):
                place = each.topic, each.partition, each.generation
                found[place] = _together(found[place], each) if place in found else each
        return tuple(found.values())


def _holdings_of(parquet: Any, number: int) -> Sequence[Holding]:
    group = parquet.metadata.row_group(number)
    bounds = row_group_bounds(group)
    has_generations = GENERATION in parquet.schema_arrow.names
    generations = bounds.get(GENERATION) if has_generations else (0, 0)
    known: list[Any] = [bounds.get("topic"), bounds.get("partition"), generations]
    offsets = bounds.get("offset")
    if offsets is None or any(each is None or each[0] != each[1] for each in known):
        columns = [*WHAT, GENERATION] if has_generations else WHAT
        return _count(with_generation(with_plain_times(parquet.read_row_group(number, columns=columns))))
    (topic, _), (partition, _), (generation, _) = known
    earliest, latest = (milliseconds(each) for each in bounds.get("timestamp", (None, None)))
    return [Holding(topic, partition, offsets[0], offsets[1], group.num_rows, earliest, latest, generation)]


def with_generation(records: Any) -> Any:
    """A table or a batch of files of any age."""
    if GENERATION in records.schema.names:
        return records
    return records.append_column(GENERATION, pyarrow.array([0] * records.num_rows, pyarrow.int32()))


def row_group_bounds(group: Any) -> Mapping[str, tuple[Any, Any]]:
    """Least and greatest of the columns that tell where a record is from, as far as the writer has noted them."""
    columns = [group.column(index) for index in range(group.num_columns)]
    noted = {
        each.path_in_schema: each.statistics
        for each in columns
        if each.path_in_schema in (*WHAT, GENERATION) and each.statistics is not None and each.statistics.has_min_max
    }
    # raw, as times that records tell may be behind the last one that Python knows
    return {
        name: (each.min_raw, each.max_raw) if name == "timestamp" else (each.min, each.max)
        for name, each in noted.items()
    }


def with_plain_times(records: Any) -> Any:
    """A table or a batch with times as microseconds, for the same reason."""
    index = records.schema.get_field_index("timestamp")
    return records.set_column(index, "timestamp", records.column("timestamp").cast("int64"))


def _count(records: pyarrow.Table) -> list[Holding]:
    bounds = [("offset", "min"), ("offset", "max"), ("offset", "count"), ("timestamp", "min"), ("timestamp", "max")]
    rows = records.group_by(["topic", "partition", GENERATION]).aggregate(bounds).to_pylist()
    return [
        Holding(
            row["topic"],
            row["partition"],
            row["offset_min"],
            row["offset_max"],
            row["offset_count"],
            milliseconds(row["timestamp_min"]),
            milliseconds(row["timestamp_max"]),
            row[GENERATION],
        )
        for row in rows
    ]


def _together(one: Holding, other: Holding) -> Holding:
    earliest = [each.earliest_ms for each in (one, other) if each.earliest_ms is not None]
    latest = [each.latest_ms for each in (one, other) if each.latest_ms is not None]
    return Holding(
        one.topic,
        one.partition,
        min(one.first, other.first),
        max(one.last, other.last),
        one.records + other.records,
        min(earliest, default=None),
        max(latest, default=None),
        one.generation,
    )


def milliseconds(microseconds: int | None) -> int | None:
    return None if microseconds is None else microseconds // MICROSECONDS_OF_A_MILLISECOND
