"""The content of an archive, found by listing its files. The listing reads no keys or values.

The listing also works during a compaction. A compaction writes its plan before it touches a file, and keeps the plan
(compaction.py). So the listing is valid if the same plans exist before and after it. Each listed file is then either in
no plan, or replaced by the files of a plan. If a file is deleted after the listing, the reader that opens this file
gets an error and lists the archive again.

The plans state the content of compacted files. The content of other files is in the statistics of their footers. Only
if several partitions share one row group, the four small columns of the row group are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow
import pyarrow.parquet

from services.pipeline.archives.layout import (
    COMPACTION,
    STAGED,
    ArchivedFile,
    BatchFolder,
    Holding,
    Plan,
    latest_plans,
    records_of,
)
from services.pipeline.kafka.positions import Position, StreamError, UnreachableError
from services.pipeline.kafka.rows import GENERATION
from services.pipeline.storage.layout import CHECKPOINT, PARQUET, last_batch, position_of
from services.pipeline.storage.stores import OpenStore, Store, in_parallel

SCANS = 20  # listings of a folder that is compacted or written faster than it can be listed
WHAT = ["topic", "partition", "offset", "timestamp"]
MICROSECONDS_OF_A_MILLISECOND = 1_000


class ArchiveReadError(StreamError):
    """The archive can't be read; the message says where and why."""


@dataclass(frozen=True)
class Catalogue:
    """The content of an archive at one moment."""

    files: tuple[ArchivedFile, ...]
    position: Position = field(default_factory=dict)
    """For each topic, its id and the offsets up to which all records are archived.

    Files may hold later records, of a batch that is being written.
    """

    def only(self, topics: Collection[str]) -> Catalogue:
        kept = tuple(each for file in self.files if (each := file.only(topics)) is not None)
        return Catalogue(kept, {topic: each for topic, each in self.position.items() if topic in topics})

    def present_generations(self) -> Catalogue:
        """Keeps the present generation of each topic: in other generations, the same offsets mean other records.

        This is the generation of the position; a topic without a position has its newest generation.
        """
        newest: dict[str, int] = {}
        for held in self.holdings():
            newest[held.topic] = max(held.generation, newest.get(held.topic, 0))
        present = newest | {topic: each.generation for topic, each in self.position.items()}
        kept = (
            ArchivedFile(file.paths, holdings)
            for file in self.files
            if (holdings := tuple(each for each in file.holdings if each.generation == present[each.topic]))
        )
        return Catalogue(tuple(kept), self.position)

    def holdings(self) -> Iterator[Holding]:
        for file in self.files:
            yield from file.holdings

    def end(self, topic: str, partition: int) -> int:
        """The offset up to which all is archived; without a known position, the end of the last archived record."""
        known = self.position.get(topic)
        if known is not None:
            return known.next.get(partition, 0)
        return max((held.last + 1 for _file, held in self._by_place.get((topic, partition), ())), default=0)

    def covering(self, topic: str, partition: int, start: int, end: int) -> list[tuple[ArchivedFile, Holding]]:
        """Files with offsets from `start` up to `end`, ordered by first offset; files of different days may overlap."""
        return [item for item in self._by_place.get((topic, partition), ()) if item[1].overlaps(start, end)]

    @cached_property
    def _by_place(self) -> dict[tuple[str, int], list[tuple[ArchivedFile, Holding]]]:
        found: dict[tuple[str, int], list[tuple[ArchivedFile, Holding]]] = {}
        for file in self.files:
            for each in file.holdings:
                found.setdefault((each.topic, each.partition), []).append((file, each))
        return {place: sorted(items, key=lambda item: item[1].first) for place, items in found.items()}


def scan(store: Store) -> Catalogue:
    """The catalogue of the archive; empty if nothing has been archived yet.

    ArchiveReadError if the archive changes during each of the SCANS listings.
    """
    opened = store.open()
    for _ in range(SCANS):
        try:
            if (found := _scan_once(opened)) is not None:
                return found
        except FileNotFoundError:  # a compaction has replaced a listed file
            continue
        except OSError as error:
            raise UnreachableError(f"the archive {store.folder} can't be read: {error}") from error
    raise ArchiveReadError(f"{store.folder} changes faster than it can be listed; try again when nothing is compacted")


def _scan_once(store: OpenStore) -> Catalogue | None:
    """None if the archive was compacted during the listing."""
    days = [store.below(each) for each in store.infos(recursive=False) if "day=" in each.base_name]
    position = _position(store)  # before the files: each record up to the position is then in a file
    compaction = store.names(COMPACTION)
    before = latest_plans(compaction)
    # a day that somebody has removed is gone; a day between steps 3 and 4 of its compaction has its large files in
    # `staged`
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
    return Catalogue((*found, *planned), position).present_generations()


def _position(store: OpenStore) -> Position:
    """Empty if the files were copied without their checkpoint."""
    done = last_batch(store.names(f"{CHECKPOINT}/commits"))
    return {} if done is None else position_of(store.text(f"{CHECKPOINT}/offsets/{done}"))


def read_holdings(store: OpenStore, path: str) -> tuple[Holding, ...]:
    """The content of one file, from its footer."""
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
    """A table or batch of any archive file.

    Files from before the column `generation` existed hold generation 0.
    """
    if GENERATION in records.schema.names:
        return records
    return records.append_column(GENERATION, pyarrow.array([0] * records.num_rows, pyarrow.int32()))


def row_group_bounds(group: Any) -> Mapping[str, tuple[Any, Any]]:
    """Least and greatest values of the columns that identify a record, if the writer has noted them."""
    columns = [group.column(index) for index in range(group.num_columns)]
    noted = {
        each.path_in_schema: each.statistics
        for each in columns
        if each.path_in_schema in (*WHAT, GENERATION) and each.statistics is not None and each.statistics.has_min_max
    }
    # raw values, because the timestamp of a record may be later than the last one that Python can represent
    return {
        name: (each.min_raw, each.max_raw) if name == "timestamp" else (each.min, each.max)
        for name, each in noted.items()
    }


def with_plain_times(records: Any) -> Any:
    """A table or batch with timestamps as microseconds, because Python cannot represent all of Kafka's timestamps."""
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
